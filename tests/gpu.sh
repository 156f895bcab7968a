#!/usr/bin/env bash
# Checks and measures turnwise on an NVIDIA GPU, also if the machine with the GPU has no Rust and no network.
#
#   tests/gpu.sh pack MODEL TRAIN DEV [FOLDER]    here: builds with the feature `cuda` and packs everything for the GPU
#                                                 machine into FOLDER [default: target/gpu], below 64 MiB
#   python3 FOLDER/device.py [STAGE…]             there: runs the stages (all by default); needs PyTorch,
#                                                 sentence-transformers and CUDA's libraries
#   tests/gpu.sh table RESULTS.json               prints the results as Markdown tables
#
# MODEL is a folder with a model in sentence-transformers' layout; TRAIN and DEV are files or folders of dialogues, DEV
# with a domain each. docs/cuda.md shows how to build without a GPU. With TURNWISE_FEATURES= (empty), `pack` builds for
# the CPU; then `device.py --device cpu` rehearses all stages without a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,14p' "$0" | sed 's/^# \{0,1\}//'; exit 2; }

pack() {
  [ $# -ge 3 ] || usage
  local model=$1 train=$2 dev=$3 folder=${4:-target/gpu} features=${TURNWISE_FEATURES-cuda} build
  build=$(mktemp)
  cargo build --release --features "$features"
  cargo bench --bench train --no-run --features "$features" --message-format json >"$build"
  local target step
  step=$(python3 -c 'import json, sys
for line in open(sys.argv[1]):
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] == "train": print(message["executable"])' "$build")
  target=${CARGO_TARGET_DIR:-target}/release/turnwise
  local files=$folder/files
  rm -rf "$folder" && mkdir -p "$files"
  strip -o "$files/turnwise" "$target" && strip -o "$files/train-step" "$step"
  "$target" corpus convert "$train" -o "$files/train.jsonl" --quiet
  "$target" corpus convert "$dev" -o "$files/dev.jsonl" --quiet
  "${PYTHON:-python3}" tests/gpu/half.py "$model" "$files/model"
  cp tests/gpu/encode.py tests/agreement/reference.py benchmarks/train/peers.py "$files"
  # Both programs contain the same kernels, so the dictionary is large enough for one of them.
  tar -C "$files" -cf - . | xz --lzma2=preset=6,dict=192MiB >"$folder/packed.tar.xz"
  rm -r "$files"
  cp tests/gpu/device.py "$folder"
  du -sh "$folder"
}

case ${1:-} in
  pack) shift; pack "$@" ;;
  table) shift; python3 tests/gpu/table.py "$@" ;;
  *) usage ;;
esac
