#!/usr/bin/env bash
# Alert rules and dashboards: a real Prometheus scrapes real clusters on which faults are made.
# Brings Prometheus from Debian's package, unpacked into a folder of its own (nothing is installed or started), and
# Grafana's models of dashboards (wheels). KRAFT_DEPLOY_TOOLS is that folder; it is kept for the next run.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools=${KRAFT_DEPLOY_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/pykraft/deploy}
python=${PYTHON:-.venv/bin/python}

if [ -z "${PROMETHEUS:-}" ]; then
    export PROMETHEUS="$tools/prometheus/usr/bin/prometheus" PROMTOOL="$tools/prometheus/usr/bin/promtool"
    if [ ! -x "$PROMETHEUS" ]; then
        command -v apt-get > /dev/null || {
            echo "monitoring.sh takes Prometheus from Debian; elsewhere set PROMETHEUS and PROMTOOL to the programs" >&2
            exit 1
        }
        mkdir -p "$tools/prometheus"
        package=$(mktemp -d)
        trap 'rm -rf "$package"' EXIT
        chmod 755 "$package"
        (cd "$package" && { apt-get download prometheus || { apt-get update && apt-get download prometheus; }; })
        dpkg -x "$package"/prometheus_*.deb "$tools/prometheus"
    fi
fi
export GRAFANA_MODELS="$tools/grafana"
for version in '1769699998!10.1.0' '1769699379!11.6.0'; do  # the oldest Grafana that is named, and a recent one
    models="$GRAFANA_MODELS/${version#*!}"
    [ -d "$models/grafana_foundation_sdk" ] || "$python" -m pip install --quiet --disable-pip-version-check \
        --root-user-action ignore --no-deps --target "$models" "grafana-foundation-sdk==$version"
done
"$python" -m pytest -m deploy tests/deploy/monitoring "$@"
