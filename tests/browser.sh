#!/usr/bin/env bash
# Installs the browser in which the page is tested: Debian's chromium and its driver. Without it that test is skipped.
set -euo pipefail
command -v chromedriver >/dev/null && command -v chromium >/dev/null && exit
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver
