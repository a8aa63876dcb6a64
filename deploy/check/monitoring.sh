#!/usr/bin/env bash
# Check alert rules and dashboards: a real Prometheus scrapes real clusters, in which faults are caused.
# Takes Prometheus and node_exporter from Debian's packages, unpacked into a folder of its own (nothing is installed), and
# Grafana's models of dashboards (wheels). KRAFT_DEPLOY_TOOLS is that folder; it is kept for the next run.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools=${KRAFT_DEPLOY_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/pykraft/deploy}
python=${PYTHON:-.venv/bin/python}
. deploy/check/alone.bash

bring() { # bring PACKAGE PROGRAM: unpack Debian's package, unless it is unpacked already
    [ ! -x "$tools/prometheus/usr/bin/$2" ] || return 0
    command -v apt-get > /dev/null || {
        echo "monitoring.sh takes $2 from Debian; elsewhere set PROMETHEUS, PROMTOOL and NODE_EXPORTER" >&2
        exit 1
    }
    local folder
    folder=$(mktemp -d)
    chmod 755 "$folder"
    (cd "$folder" && { apt-get download "$1" || { apt-get update && apt-get download "$1"; }; }) > "$folder/log" 2>&1 \
        || { cat "$folder/log" >&2; rm -rf "$folder"; exit 1; }
    mkdir -p "$tools/prometheus"
    dpkg -x "$folder/$1"_*.deb "$tools/prometheus"
    rm -rf "$folder"
}
[ -n "${PROMETHEUS:-}" ] || bring prometheus prometheus
[ -n "${NODE_EXPORTER:-}" ] || bring prometheus-node-exporter prometheus-node-exporter
export PROMETHEUS="${PROMETHEUS:-$tools/prometheus/usr/bin/prometheus}" PROMTOOL="${PROMTOOL:-$tools/prometheus/usr/bin/promtool}"
export NODE_EXPORTER="${NODE_EXPORTER:-$tools/prometheus/usr/bin/prometheus-node-exporter}"
export GRAFANA_MODELS="$tools/grafana"
for version in '1769699998!10.1.0' '1769699379!11.6.0'; do  # the oldest supported Grafana, and a recent one
    models="$GRAFANA_MODELS/${version#*!}"
    [ -d "$models/grafana_foundation_sdk" ] || "$python" -m pip install --quiet --disable-pip-version-check \
        --root-user-action ignore --no-deps --target "$models" "grafana-foundation-sdk==$version"
done
tests -m deploy tests/deploy/monitoring "$@"
