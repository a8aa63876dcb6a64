#!/usr/bin/env bash
# Install podman-compose in a virtual environment of its own, and unpack Debian's Prometheus.
set -o errexit -o nounset
python3 -m venv "$WORK/compose"
"$WORK/compose/bin/pip" install --quiet --disable-pip-version-check podman-compose==1.6.0
mkdir -p "$WORK/prometheus"
cd "$WORK/prometheus"
apt-get download -qq prometheus 2> /dev/null || { apt-get update -qq && apt-get download -qq prometheus 2> /dev/null; }
dpkg -x prometheus_*.deb .
