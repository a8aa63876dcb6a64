#!/usr/bin/env bash
# Install podman-compose in a virtual environment of its own.
set -o errexit -o nounset
python3 -m venv "$WORK/compose"
"$WORK/compose/bin/pip" install --quiet --disable-pip-version-check podman-compose==1.6.0
