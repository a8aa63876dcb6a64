#!/usr/bin/env bash
# The unit of systemd: its syntax, how well it confines a node, and that its filter lets a node do what it does.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
for tool in systemd-analyze:systemd strace:strace; do
    command -v "${tool%%:*}" > /dev/null || apt-get install --yes --no-install-recommends "${tool##*:}" || {
        echo "systemd.sh needs ${tool%%:*}" >&2
        exit 1
    }
done
"$python" -m pytest tests/deploy/systemd "$@"
