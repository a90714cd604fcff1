#!/usr/bin/env bash
# Installs what is missing, builds, generates kernels and runs decode attention on queries, keys and values of a real model (tests/data). Without a GPU it
# assembles and inspects the kernels, finds the loss of the quantisation schemes on the CPU, and says what it could not run.
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
code=0
for file in tests/data/*.safetensors; do
    $foscar run --input "$file" sm_90a-k{2,4}t64-v{2,4}t64-d64-h3-p64-of32 2>build/demo.err || code=$?
    echo
    case $code in 0 | 3) ;; *) cat build/demo.err >&2; exit $code ;; esac
done
[ $code -eq 0 ] || cat build/demo.err >&2

if [ $code -eq 0 ]; then
    echo "== time against the read ceiling"
    $foscar bench --grid quick
fi
exit 0
