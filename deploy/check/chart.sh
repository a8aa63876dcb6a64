#!/usr/bin/env bash
# Check the Helm chart: lint, and validate its manifests for a matrix of values against the schemas of Kubernetes.
# Installs Helm (by `go install`) and the schemas (a wheel) into a folder of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools=${KRAFT_DEPLOY_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/pykraft/deploy}
python=${PYTHON:-.venv/bin/python}
. deploy/check/alone.bash
. deploy/check/go.bash
mkdir -p "$tools/bin"

if [ ! -x "$tools/bin/helm" ]; then
    modern_go "$python"
    echo "Building Helm once; this takes some minutes."
    GOBIN="$tools/bin" go install helm.sh/helm/v3/cmd/helm@v3.22.0
fi
if [ ! -d "$tools/python/kubernetes_validate" ]; then
    "$python" -m pip install --quiet --disable-pip-version-check --target "$tools/python" \
        kubernetes-validate==1.37.0 pyyaml
fi

export HELM="$tools/bin/helm"
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$tools/python"
tests -m deploy tests/deploy/kubernetes "$@"
