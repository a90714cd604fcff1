#!/usr/bin/env bash
# Writes the golden PTX anew: tests/golden/SPEC.ptx for every spec that has a file there (`touch tests/golden/SPEC.ptx` adds one) and for the four below.
# Look at `git diff tests/golden` before you commit it. Usage: tools/golden.sh [BUILD FOLDER], build by default.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}

[ -f "$build/build.ninja" ] || meson setup "$build"
ninja -C "$build" tools/foscar/foscar

specs=(
    sm_90a-k2t128-v2t128-d128-h8-p64
    sm_90a-k4t128-v4t128-d128-h8-p64
    sm_90a-k2t64-v4t64-d64-h1-p128
    sm_90a-k2t256-v2t256-d256-h16-p256
)
mkdir -p tests/golden
for file in tests/golden/*.ptx; do
    [ -e "$file" ] && specs+=("$(basename "$file" .ptx)")
done
printf '%s\n' "${specs[@]}" | sort -u | while read -r spec; do
    "$build/tools/foscar/foscar" emit "$spec" -o "tests/golden/$spec.ptx"
    echo "tests/golden/$spec.ptx"
done
