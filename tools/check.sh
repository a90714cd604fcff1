#!/usr/bin/env bash
# Builds with gcc and clang (warnings are errors) and with the address and undefined-behaviour sanitizers, runs every test in each build, compares the
# PTX that gcc's and clang's builds make of the whole grid, assembles it, and fuzzes the PTX interpreter for a moment.
# Ends with one line: N passed, N failed. Logs are in build/check.
set -uo pipefail
cd "$(dirname "$0")/.."
tools/setup_deps.sh || exit 1

passed=0 failed=0
logs=build/check
jobs=$(nproc)

# step NAME COMMAND...: one check; its log is shown when it fails.
step() {
    local name=$1 begin=$SECONDS
    shift
    if "$@" >"$logs/$name.log" 2>&1; then
        passed=$((passed + 1))
        echo "ok    $name ($((SECONDS - begin)) s)"
    else
        failed=$((failed + 1))
        echo "FAIL  $name ($((SECONDS - begin)) s)"
        tail -n 20 "$logs/$name.log"
        return 1
    fi
}

build() { # COMPILER FOLDER [OPTION...]
    local compiler=$1 folder=$2
    shift 2
    if [ -f "$folder/build.ninja" ]; then meson configure "$folder" -Dwerror=true "$@"; else CC=$compiler meson setup "$folder" -Dwerror=true -Dtests=enabled "$@"; fi &&
        ninja -C "$folder"
}

# Runs the tests of a build and adds their cmocka cases up; a program that crashes or times out counts as one failure.
run_tests() { # NAME FOLDER
    local log="$2/meson-logs/testlog.txt" ok bad programs
    meson test -C "$2" --no-rebuild --print-errorlogs >"$logs/$1.log" 2>&1
    local status=$?
    ok=$(grep -c '^\[       OK \]' "$log")
    bad=$(grep -E '^\[  FAILED  \] [A-Za-z_0-9]+$' "$log" | sort -u | wc -l)
    programs=$(awk '/^(Fail|Timeout):/ { n += $2 } END { print n + 0 }' "$logs/$1.log")
    [ "$bad" -lt "$programs" ] && bad=$programs
    [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    passed=$((passed + ok)) failed=$((failed + bad))
    grep -E '^\[  SKIPPED \] [A-Za-z_0-9]+$' "$log" | sort -u | sed 's/^\[  SKIPPED \]/skip /'
    if [ "$bad" -gt 0 ]; then
        echo "FAIL  $1: $ok cases passed, $bad failed"
        tail -n 80 "$logs/$1.log"
    else
        echo "ok    $1: $ok cases"
    fi
}

emit_grid() { # FOLDER
    rm -rf "$1/grid" && "$1/tools/foscar/foscar" emit --all -o "$1/grid" && [ "$(ls "$1/grid" | wc -l)" -eq "$("$1/tools/foscar/foscar" list --specs | wc -l)" ]
}

find_ptxas() {
    local path
    for path in "${FOSCAR_PTXAS:-}" "${CUDA_HOME:-/-}/bin/ptxas" "$(command -v ptxas)" /usr/local/cuda/bin/ptxas .deps/nvidia/cu1*/bin/ptxas; do
        [ -x "$path" ] && echo "$path" && return
    done
    return 1
}

# ptxas over the grid, straight from the command line: no spill, no stack frame, no note that setmaxnreg was ignored or wgmma serialised (C75xx).
assemble_some() {
    local file log status=0
    for file; do
        if ! log=$("$PTXAS" -v -arch=sm_90a -o /dev/null "$file" 2>&1) || ! grep -q 'Used [0-9]* registers' <<<"$log" ||
            grep -qE 'C75[0-9][0-9]|[1-9][0-9]* bytes (stack frame|spill)' <<<"$log"; then
            echo "${file##*/}: $(grep -E 'error|fatal|C75|stack frame' <<<"$log" | head -n 1)"
            status=1
        fi
    done
    return $status
}
assemble_grid() { # FOLDER
    PTXAS=$(find_ptxas) || { echo "no ptxas"; return 1; }
    export PTXAS
    export -f assemble_some
    find "$1/grid" -name '*.ptx' -print0 | sort -z | xargs -0 -n 8 -P "$jobs" bash -c 'assemble_some "$@"' _ && [ -n "$(ls "$1/grid")" ]
}

same_grids() { # FOLDER FOLDER
    diff -rq "$1/grid" "$2/grid" && return
    echo "$(diff -rq "$1/grid" "$2/grid" | wc -l) files differ; two emitting calls among the arguments of one call?"
    return 1
}

can_fuzz() {
    echo 'int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long size) { return data && size ? 0 : -1; }' |
        clang -x c -fsanitize=fuzzer,address,undefined -o "$logs/can_fuzz" - >"$logs/can_fuzz.log" 2>&1
}

mkdir -p "$logs"
step build_gcc build gcc build
step build_clang build clang build-clang
step build_sanitized build gcc build-sanitized -Db_sanitize=address,undefined -Db_lundef=false
[ -x build/tools/foscar/foscar ] && run_tests tests_gcc build
[ -x build-clang/tools/foscar/foscar ] && run_tests tests_clang build-clang
[ -x build-sanitized/tools/foscar/foscar ] && run_tests tests_sanitized build-sanitized
step emit_grid_gcc emit_grid build &&
    step emit_grid_clang emit_grid build-clang &&
    step same_ptx_from_gcc_and_clang same_grids build build-clang
step assemble_grid assemble_grid build
if can_fuzz; then step fuzz tools/fuzz.sh 20; else echo "skip  fuzz: clang here has no libFuzzer"; fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
