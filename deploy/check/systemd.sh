#!/usr/bin/env bash
# Check the systemd unit: its syntax, its sandboxing, and that its filter allows every system call of a node.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/check/alone.bash
for tool in systemd-analyze:systemd strace:strace; do
    command -v "${tool%%:*}" > /dev/null || debian "${tool##*:}"
done
tests tests/deploy/systemd "$@"
