#!/usr/bin/env bash
# Installs the official clients for the tests of the server, in $TURNWISE_CLIENTS or ~/.cache/turnwise/clients. Without
# them, these tests are skipped.
set -euo pipefail
cd "$(dirname "$0")"
clients=${TURNWISE_CLIENTS:-$HOME/.cache/turnwise/clients}
cmp -s clients/requirements.txt "$clients/installed" && exit
if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv
fi
python3 -m venv "$clients"
"$clients/bin/python" -m pip install --quiet --disable-pip-version-check -r clients/requirements.txt
cp clients/requirements.txt "$clients/installed"
