#!/usr/bin/env bash
# Fuzzes the PTX interpreter with libFuzzer under the address and undefined-behaviour sanitizers, from the seeds in tests/fuzz/seeds.
#
#   tools/fuzz.sh [SECONDS] [HARNESS...]    SECONDS for each harness (60); HARNESS: emulator_parse, emulator_run (both)
#
# What a run learns is thrown away at its end; inputs that are findings stay in build-fuzz/findings, and the exit code is 1. FOSCAR_FUZZ_BUILD names
# another folder than build-fuzz.
set -uo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
[ $# -gt 0 ] && shift
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "fuzz: '$seconds' is no number of seconds" >&2; exit 2; }
harnesses=("$@")
[ $# -eq 0 ] && harnesses=(emulator_parse emulator_run)
for harness in "${harnesses[@]}"; do
    [ -f "tests/fuzz/fuzz_$harness.c" ] || { echo "fuzz: there is no harness '$harness'" >&2; exit 2; }
done

folder=${FOSCAR_FUZZ_BUILD:-build-fuzz}
mkdir -p "$folder"
if [ ! -f "$folder/build.ninja" ]; then
    CC=clang meson setup "$folder" -Dfuzzers=enabled -Dtests=disabled -Dtool=disabled -Db_sanitize=address,undefined -Db_lundef=false >"$folder/setup.log" ||
        { tail -n 5 "$folder/setup.log"; exit 3; }
fi
ninja -C "$folder" "${harnesses[@]/#/tests/fuzz/fuzz_}" >"$folder/build.log" || { tail -n 20 "$folder/build.log"; exit 3; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Words of instructions, which libFuzzer puts together.
grep -v '^ \*' tools/emulator/forms.def | grep -oE '"[^"]+"' | grep -oE '[A-Za-z_][A-Za-z0-9_:]+' | sort -u | sed 's/.*/"&"/' >"$work/words"

# An input is a finding if it crashes, leaks, takes longer than a loaded machine explains, or wants much memory.
fuzz() { # HARNESS
    local log="$folder/$1.log" findings="$folder/findings/$1-" seeds=tests/fuzz/seeds/${1#emulator_} runs
    mkdir -p "$work/$1" "$folder/findings"
    if UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 "$folder/tests/fuzz/fuzz_$1" -max_total_time="$seconds" -max_len=8192 -timeout=5 -rss_limit_mb=2048 \
        -dict="$work/words" -artifact_prefix="$findings" -print_final_stats=1 "$work/$1" "$seeds" >"$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        echo "ok    $1: $runs inputs in $seconds s, $(grep -oE 'cov: [0-9]+' "$log" | tail -n 1)"
    else
        echo "FAIL  $1 (log: $log)"
        grep -E -A 12 'ERROR|SUMMARY|runtime error' "$log" | head -n 40
        grep 'Test unit written' "$log"
        return 1
    fi
}

status=0
for harness in "${harnesses[@]}"; do fuzz "$harness" || status=1; done
exit $status
