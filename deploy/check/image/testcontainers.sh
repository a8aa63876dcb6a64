#!/usr/bin/env bash
# The programs of tests/deploy/testcontainers start the image through podman's socket, as they would through Docker's.
set -o errexit -o nounset -o pipefail
ip link set lo up  # of this network namespace
socket="$WORK/podman.sock"
podman system service --time 0 "unix://$socket" > "$WORK/service.log" 2>&1 &
until [ -S "$socket" ]; do sleep 0.1; done
export DOCKER_HOST="unix://$socket" TESTCONTAINERS_RYUK_DISABLED=true TESTCONTAINERS_CHECKS_DISABLE=true
export TESTCONTAINERS_CONNECTION_MODE=docker_host TC_HOST=127.0.0.1  # read by the module for Python
cd "$WORK/programs"
failed=()
attempt() { # attempt NAME COMMAND…
  local began=$SECONDS
  if timeout 180 "${@:2}" > "$WORK/$1.log" 2>&1; then
    tail -2 "$WORK/$1.log" | grep "produced and consumed" || true
    echo "ok: testcontainers for $1 ($((SECONDS - began)) s)"
  else
    failed+=("$1")
    echo "FAILED: testcontainers for $1" >&2
    tail -40 "$WORK/$1.log" >&2
    podman ps --all >&2
    podman logs --latest 2>&1 | tail -20 >&2 || true
  fi
  podman rm --all --force > /dev/null 2>&1 || true
}
attempt Python "$WORK/venv/bin/python" python/program.py
attempt Node node node/program.js
attempt Go go/target/go
attempt Java java -cp "java/target/classes:java/target/dependency/*" Program
[ ${#failed[@]} -eq 0 ] || exit 1
