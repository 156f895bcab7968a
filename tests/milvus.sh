#!/usr/bin/env bash
# Installs the server that the engine for Milvus is tested with, the Milvus project's own for one node, into $TURNWISE_MILVUS or
# ~/.cache/turnwise/milvus. Without it those tests are skipped.
set -euo pipefail
cd "$(dirname "$0")"
folder=${TURNWISE_MILVUS:-$HOME/.cache/turnwise/milvus}
cmp -s engines/requirements.txt "$folder/installed" && exit
if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv
fi
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r engines/requirements.txt
cp engines/requirements.txt "$folder/installed"
