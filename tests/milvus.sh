#!/usr/bin/env bash
# Installs Milvus Lite, the Milvus project's single-node server, for the tests of the Milvus engine. The folder is
# $TURNWISE_MILVUS or ~/.cache/turnwise/milvus. Without the server, these tests are skipped.
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
