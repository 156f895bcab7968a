#!/usr/bin/env bash
# Installs an S3 server and Ray for the tests of encoding in shards, in $TURNWISE_SCALE or ~/.cache/turnwise/scale.
# Without them, these tests are skipped.
set -euo pipefail
cd "$(dirname "$0")"
scale=${TURNWISE_SCALE:-$HOME/.cache/turnwise/scale}
cmp -s scale/requirements.txt "$scale/installed" && exit
if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv
fi
python3 -m venv "$scale"
"$scale/bin/python" -m pip install --quiet --disable-pip-version-check -r scale/requirements.txt
cp scale/requirements.txt "$scale/installed"
