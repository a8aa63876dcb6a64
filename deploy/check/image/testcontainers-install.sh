#!/usr/bin/env bash
# Install what the programs of tests/deploy/testcontainers need, each with its language's package manager.
set -o errexit -o nounset -o pipefail
. deploy/check/go.bash
cp -r tests/deploy/testcontainers "$WORK/programs"
cd "$WORK/programs"
python3 -m venv "$WORK/venv"
"$WORK/venv/bin/pip" install --quiet --disable-pip-version-check -r python/requirements.txt
(cd node && npm ci --silent --ignore-scripts)
modern_go "$WORK/venv/bin/python"
(cd go && go build -mod=readonly -o target/go .)
(cd java && mvn -q -B compile dependency:copy-dependencies -DincludeScope=runtime)
