#!/usr/bin/env bash
# Installs the browser for the tests of the web page: Debian's chromium and its driver. Without it, these tests are
# skipped.
set -euo pipefail
command -v chromedriver >/dev/null && command -v chromium >/dev/null && exit
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver
