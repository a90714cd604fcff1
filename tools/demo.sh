#!/usr/bin/env bash
# Installs what is missing, builds, generates kernels and runs decode attention on queries, keys and values of a real model (tests/data). Without a GPU the
# kernels run in the PTX interpreter, which also judges their ordering.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup_deps.sh

[ -f build/build.ninja ] || meson setup build >/dev/null
ninja -C build >/dev/null
foscar=build/tools/foscar/foscar

echo "== what is here"
$foscar doctor || true

echo
echo "== what can be generated"
$foscar list

echo
echo "== a kernel: 2-bit K and V, head dimension 128, 8 query heads per KV head, pages of 64 tokens"
$foscar emit sm_90a-k2t128-v2t128-d128-h8-p64 -o build/kernel.ptx
echo "build/kernel.ptx: $(wc -l <build/kernel.ptx) lines"
$foscar inspect sm_90a-k2t128-v2t128-d128-h8-p64 | sed -n '1,/bytes read/p'

echo
echo "== decode attention on SmolLM2-135M (9 query heads, 3 KV heads, d = 64); error: kernel against float64 over the dequantised cache;"
echo "   scheme: attention over the quantised cache against the unquantised one"
specs=(sm_90a-k{2,4}t64-v{2,4}t64-d64-h3-p64-of32)
code=0 where=()
$foscar run --batch 1 --context 1 "${specs[0]}" >/dev/null 2>build/demo.err || code=$?
case $code in
0) ;;
3) where=(--cpu) && cat build/demo.err ;;
*) cat build/demo.err >&2; exit $code ;;
esac
for file in tests/data/*.safetensors; do
    echo
    $foscar run "${where[@]}" --input "$file" "${specs[@]}"
done

echo
if [ $code -eq 0 ]; then
    echo "== time against the read ceiling"
    $foscar bench --grid quick
else
    echo "== ordering and protocol of a kernel, under many schedules of the interpreter"
    $foscar check --schedules 2 "${specs[0]}"
fi
