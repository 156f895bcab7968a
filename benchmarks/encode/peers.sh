#!/usr/bin/env bash
# Installs the Python packages that turnwise is measured and tested against: PyTorch, sentence-transformers, ONNX
# Runtime. Does nothing if they are there already.
#
#   benchmarks/encode/peers.sh          for the CPU: about 2 GB
#   benchmarks/encode/peers.sh --gpu    with NVIDIA's libraries and Triton too: about 6 GB
#
# They go to $TURNWISE_PEERS, or else to ~/.cache/turnwise/peers; $PYTHON (python3) is the Python they are for.
set -euo pipefail
cd "$(dirname "$0")"

peers=${TURNWISE_PEERS:-$HOME/.cache/turnwise/peers}
python=${PYTHON:-python3}
kind=cpu
case ${1:-} in
  "") ;;
  --gpu) kind=gpu ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

check='import onnxruntime, sentence_transformers, torch; assert float((torch.ones(3, 3) @ torch.ones(3, 3)).sum()) == 27'
wanted="$kind $(cat requirements.txt stubs.py peers.sh | sha256sum | cut -c1-16)"
# Only what this script made is ever replaced.
if [ ! -e "$peers/turnwise-peers" ] && [ -n "$(ls -A "$peers" 2>/dev/null)" ]; then
  if "$peers/bin/python" -c "$check" 2>/dev/null; then
    echo "$peers: installed by other means, left as it is"
    exit
  fi
  echo "$peers is not empty, was not made by this script, and lacks the peers: set TURNWISE_PEERS to another folder" >&2
  exit 1
fi
if [ "$(cat "$peers/turnwise-peers" 2>/dev/null)" = "$wanted" ]; then
  echo "$peers: up to date ($(du -sh "$peers" | cut -f1))"
  exit
fi

say() { printf '\n== %s\n' "$*"; }
start=$SECONDS
say "a Python of their own in $peers"
# Begun anew, so that it never is a mixture of two states.
rm -rf "$peers"
mkdir -p "$peers"
echo "unfinished" >"$peers/turnwise-peers"
"$python" -m venv "$peers"
pip() { "$peers/bin/python" -m pip --disable-pip-version-check "$@"; }

say "the packages, for the $kind"
if [ "$kind" = gpu ]; then
  pip install --quiet -r requirements.txt
else
  pip install --quiet --no-deps -r requirements.txt
  # PyTorch's x86 build does not load without the libraries for graphics cards, though on a CPU it calls none.
  "$peers/bin/python" stubs.py || true
fi
if ! "$peers/bin/python" -c "$check"; then
  if [ "$kind" = gpu ]; then
    echo "the peers do not load: see above" >&2
    exit 1
  fi
  say "they do not load: with all that they name, then"
  "$peers/bin/python" stubs.py --remove
  pip install --quiet -r requirements.txt
  "$peers/bin/python" -c "$check"
fi
echo "$wanted" >"$peers/turnwise-peers"
say "$peers: $(du -sh "$peers" | cut -f1), in $((SECONDS - start)) s"
