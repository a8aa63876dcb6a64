#!/usr/bin/env bash
# The unit of systemd: its syntax, how well it confines a node, and that its filter lets a node do what it does.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/check/alone.bash
for tool in systemd-analyze:systemd strace:strace; do
    command -v "${tool%%:*}" > /dev/null || debian "${tool##*:}"
done
tests tests/deploy/systemd "$@"
