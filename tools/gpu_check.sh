#!/usr/bin/env bash
# All GPU work in one go, on any machine with a driver: correctness of the grid, hard data, real input, the PTX interpreter against the GPU,
# compute-sanitizer, the benchmark; a table at the end. Builds nothing, so that it also runs with a program brought from elsewhere.
#
#   tools/gpu_check.sh [PART...]       parts: grid data input interpreter sanitizer bench (default: all of them, in this order)
#   tools/gpu_check.sh pack FOLDER     copies the program and the libraries it needs into FOLDER, to be carried to another machine
#
#   BUILD   folder of the build, or a packed one (default: build)
#   OUT     folder for logs and JSON (default: $BUILD/gpu_check)
# Exit codes: 0 all passed, 1 something failed, 3 no GPU or no program.
set -uo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
OUT=${OUT:-$BUILD/gpu_check}
for foscar in "$BUILD/foscar" "$BUILD/tools/foscar/foscar"; do [ -x "$foscar" ] && break; done
[ -x "$foscar" ] || { echo "gpu_check: there is no program in $BUILD; run tools/check.sh or set BUILD" >&2; exit 3; }

if [ "${1:-}" = pack ]; then
    mkdir -p "$2/lib" && cp "$foscar" "$2/foscar" && strip "$2/foscar"
    ldd "$foscar" | awk '$1 ~ /^lib(cjson|crypto)/ { print $3 }' | xargs -I{} cp -L {} "$2/lib/"
    exit
fi
mkdir -p "$OUT"
[ -d "$BUILD/lib" ] && export LD_LIBRARY_PATH="$BUILD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

table=()
failed=0
note() { table+=("$(printf '%-34s %-6s %s' "$1" "$2" "$3")"); }

# run_part NAME ARGUMENTS...: `foscar run`; its verdict goes to the table, its output to a log.
run_part() {
    local name=$1 begin=$SECONDS verdict=ok detail
    shift
    "$foscar" run "$@" >"$OUT/$name.log" 2>&1 || { verdict=FAIL failed=1; }
    detail=$(awk '/^sm_/ { n++; if ($NF != "ok") bad++; if ($5 > worst) worst = $5 } END { printf "%d specs, %d bad, largest error %.2e", n, bad, worst }' "$OUT/$name.log")
    note "$name" "$verdict" "$detail ($((SECONDS - begin)) s)"
    [ "$verdict" = ok ] || grep -v ' ok$' "$OUT/$name.log" | head -n 20
}

# run_grid NAME SUFFIX ARGUMENTS...: the same over every spec of `list` (plus SUFFIX), by as many processes as there are cores: building kernels
# takes longer than running them.
run_grid() {
    local name=$1 suffix=$2 begin=$SECONDS verdict=ok detail
    shift 2
    rm -rf "$OUT/$name" && mkdir -p "$OUT/$name"
    export foscar
    "$foscar" list --specs | awk -v suffix="$suffix" 'suffix == "" || !/-o/ { print $0 suffix }' | xargs -n 8 -P "$(nproc)" bash -c \
        'folder=$1; shift; n=0; for a; do [ "$a" = : ] && break; n=$((n + 1)); done; specs=("${@:n+2}"); "$foscar" run "${specs[@]}" "${@:1:n}" >"$folder/${specs[0]}.log" 2>&1' \
        _ "$OUT/$name" "$@" : || { verdict=FAIL failed=1; }
    cat "$OUT/$name"/*.log >"$OUT/$name.log"
    detail=$(awk '/^sm_/ { n++; if ($NF != "ok") bad++; if ($5 > worst) worst = $5 } END { printf "%d specs, %d bad, largest error %.2e", n, bad, worst }' "$OUT/$name.log")
    note "$name" "$verdict" "$detail ($((SECONDS - begin)) s)"
    [ "$verdict" = ok ] || grep -v ' ok$' "$OUT/$name.log" | head -n 20
}

two=sm_90a-k2t128-v2t128-d128-h8-p64-of32
four=sm_90a-k4t128-v4t128-d128-h8-p64-of32
mixed=sm_90a-k4t128-v2t128-d128-h7-p128-of32

grid() {
    run_grid grid_own_types "" --lse --batch 8 --context ragged:700 --table csr
    run_grid grid_f32 -of32 --lse --batch 8 --context ragged:900
}

data() {
    run_part random $two $four $mixed --lse --batch 3 --context 5000 --graph
    run_part one_token $two $four $mixed --lse --batch 3 --context 1
    run_part thousand_short $two $four --lse --batch 1000 --context ragged:300 --kv-heads 1 --graph
    run_part outlier $two $four $mixed --lse --data outlier --context ragged:3000
    run_part large_scores $two $four $mixed --lse --data large --context 4000
    run_part ranges $two $four $mixed --lse --data ranges --batch 16 --context ragged:3000
    run_part steps $two $four $mixed --lse --data steps --batch 16 --context ragged:5000
    run_part heads $two $four $mixed --lse --data heads --batch 16 --context ragged:3000
    run_part nans $two $four $mixed --lse --data nans --batch 16 --context ragged:3000
    run_part sink_128k $two $four --lse --data sink --batch 1 --context 131072
    run_part long_128k $two $four --lse --batch 1 --context 131072 --kv-heads 8 --table csr
}

input() {
    local file k v
    for file in tests/data/*.safetensors; do
        run_part "input_$(basename "$file" .safetensors)" --input "$file" --lse $(for k in 2 4; do for v in 2 4; do echo "sm_90a-k${k}t64-v${v}t64-d64-h3-p64-of32"; done; done)
        awk '/^sm_/ { printf "    %s  kernel %s  scheme %s\n", $1, $5, $8 }' "$OUT/input_$(basename "$file" .safetensors).log"
    done
}

# The same problems on the GPU and in the PTX interpreter with as many SMs; what they made is compared.
interpreter() {
    local begin=$SECONDS verdict=ok folder="$OUT/interpreter" sms
    sms=$("$foscar" doctor | sed -n 's/^GPU.* \([0-9]*\) SMs.*/\1/p' | head -n 1)
    rm -rf "$folder" && mkdir -p "$folder/gpu" "$folder/cpu"
    export foscar
    "$foscar" list --specs | awk '!/-o/ { print $0 "-of32" }' | xargs -n 1 -P "$(nproc)" bash -c \
        'problem=("$3" --seed 11 --batch 3 --context ragged:500 --lse)
         "$foscar" run "${problem[@]}" --output "$1/gpu/$3" && "$foscar" run "${problem[@]}" --cpu --blocks "$2" --output "$1/cpu/$3"' \
        _ "$folder" "$sms" >"$folder.log" 2>&1 || { verdict=FAIL failed=1; grep '^foscar' "$folder.log" | head -n 10; }
    python3 tools/compare_outputs.py "$folder/gpu" "$folder/cpu" >"$OUT/interpreter.txt" || { verdict=FAIL failed=1; }
    note "interpreter against GPU" "$verdict" "$(tail -n 1 "$OUT/interpreter.txt") ($((SECONDS - begin)) s)"
}

sanitizer() {
    local sanitizer tool
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || { note compute-sanitizer skip "not found"; return; }
    for tool in memcheck racecheck; do
        local log="$OUT/sanitizer_$tool.log" verdict=ok
        "$foscar" run $two >/dev/null 2>&1 # so that the sanitizer does not watch NVRTC
        timeout 90 "$sanitizer" --tool $tool --error-exitcode 9 "$foscar" run $two --batch 3 --context ragged:700 --lse --seed 1 >"$log" 2>&1
        case $? in
        0) ;;
        9) verdict=FAIL failed=1 ;;
        *) verdict=skip ;; # it refuses the device or the driver
        esac
        note "compute-sanitizer $tool" "$verdict" "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY|Error|not supported' "$log" | tail -n 1)"
    done
}

bench() {
    local grid
    for grid in peers wide; do
        local verdict=ok
        "$foscar" bench --grid $grid --json >"$OUT/bench_$grid.json" 2>"$OUT/bench_$grid.err" || { verdict=FAIL failed=1; cat "$OUT/bench_$grid.err"; }
        note "bench $grid" "$verdict" "$OUT/bench_$grid.json"
        bench_table "$OUT/bench_$grid.json"
    done
}

bench_table() {
    python3 - "$1" <<'PYTHON'
import json, sys
try:
    with open(sys.argv[1]) as file:
        bench = json.load(file)
except ValueError:
    sys.exit("no result")
ceiling = bench["read_ceiling"]
print(f"{bench['device']}; read ceiling {max(ceiling['loads_tb_per_s'], ceiling['bulk_tb_per_s']):.3f} TB/s; median of {bench['repeats']}, cold L2; seed {bench['seed']}")
print(f"{'spec':40} {'kv':>3} {'batch x ctx':>14} {'us':>9} {'ceiling':>8} {'bf16-eq TB/s':>13} {'error':>8}")
for r in bench["rows"]:
    shape = f"{r['batch']} x {'~' if r['ragged'] else ''}{r['context']}"
    print(f"{r['spec']:40} {r['kv_heads']:3} {shape:>14} {r['microseconds']:9.1f} {r['share_of_ceiling']:8.3f} {r['bf16_equivalent_tb_per_s']:13.2f} {r['relative_error'] or float('nan'):8.1e}")
PYTHON
}

"$foscar" doctor || {
    echo "gpu_check: no GPU run is possible here" >&2
    exit 3
}
date -u
git rev-parse --short HEAD 2>/dev/null
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(grid data input interpreter sanitizer bench)
for part in "${parts[@]}"; do
    case $part in
    grid | data | input | interpreter | sanitizer | bench) $part ;;
    *) echo "gpu_check: '$part' is none of grid data input interpreter sanitizer bench" >&2; exit 2 ;;
    esac
done
printf '\n%s\n' "--- summary ---"
printf '%s\n' "${table[@]}"
exit $failed
