#!/usr/bin/env bash
# Runs the tests of the kernels on an emulated ARM processor, at all NEON levels. On Debian, this needs:
#
#   apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross
#   rustup target add aarch64-unknown-linux-gnu
#
# It takes about half an hour.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu"
exec cargo test --locked -p turnwise-kernels --lib --target aarch64-unknown-linux-gnu "$@"
