#!/usr/bin/env bash
# Installs what building and checking need: Debian packages where something is missing (as root or through sudo), and, where no CUDA toolkit is found,
# ptxas, NVRTC and nvdisasm as Python wheels in ./.deps, which the program searches. Does nothing when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=()
need_command() { command -v "$1" >/dev/null || packages+=("$2"); }
need_library() { pkg-config --exists "$1" 2>/dev/null || packages+=("$2"); }

need_command gcc gcc
need_command clang clang
need_command meson meson
need_command ninja ninja-build
need_command pkg-config pkg-config
need_command python3 python3
[ -e /usr/include/stdio.h ] || packages+=(libc6-dev)
need_library cmocka libcmocka-dev
need_library libcrypto libssl-dev
need_library libcjson libcjson-dev
python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)

if [ ${#packages[@]} -gt 0 ]; then
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { echo "setup_deps: install as root: ${packages[*]}" >&2; exit 3; }
        as_root=(sudo)
    fi
    command -v apt-get >/dev/null || { echo "setup_deps: no apt-get here; install what these Debian packages hold: ${packages[*]}" >&2; exit 3; }
    echo "setup_deps: installing ${packages[*]}"
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi

# True if one of the paths or patterns exists.
any_exists() {
    local path
    for path in "$@"; do [ -e "$path" ] && return 0; done
    return 1
}

wheels=()
command -v ptxas >/dev/null || any_exists "${FOSCAR_PTXAS:-/-}" "${CUDA_HOME:-/-}/bin/ptxas" /usr/local/cuda/bin/ptxas .deps/nvidia/cu1*/bin/ptxas ||
    wheels+=("nvidia-cuda-nvcc>=13,<14")
ldconfig -p 2>/dev/null | grep -q 'libnvrtc\.so' ||
    any_exists "${FOSCAR_NVRTC:-/-}" "${CUDA_HOME:-/-}"/lib64/libnvrtc.so* /usr/local/cuda/lib64/libnvrtc.so* .deps/nvidia/cu1*/lib/libnvrtc.so* ||
    wheels+=("nvidia-cuda-nvrtc>=13,<14")
command -v nvdisasm >/dev/null || any_exists "${FOSCAR_NVDISASM:-/-}" "${CUDA_HOME:-/-}/bin/nvdisasm" /usr/local/cuda/bin/nvdisasm .deps/nvidia/cu1*/bin/nvdisasm ||
    wheels+=("nvidia-cuda-nvdisasm>=13,<14")

# Without their dependencies: ptxas, NVRTC and nvdisasm stand alone; the rest of the toolkit would be half a gigabyte.
if [ ${#wheels[@]} -gt 0 ]; then
    echo "setup_deps: fetching ${wheels[*]} into .deps"
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .deps "${wheels[@]}"
fi
