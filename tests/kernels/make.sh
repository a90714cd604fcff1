#!/usr/bin/env bash
# Compiles the kernels here to the PTX texts beside them, by nvcc on the path or in /usr/local/cuda; the texts are committed, because nvcc is not
# everywhere and because a text that has once been read must still be read later. The compiler's version is in the first lines of each.
#
#   tests/kernels/make.sh [NAME...]
set -euo pipefail
cd "$(dirname "$0")"
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
names=("$@")
[ $# -eq 0 ] && names=(*.cu)
for name in "${names[@]}"; do
    name=${name%.cu}
    arch=$(sed -n 's|^// arch: ||p' "$name.cu")
    "$nvcc" -ptx -arch="${arch:-sm_90a}" -std=c++17 -w -o "$name.ptx" "$name.cu"
done
