# Sourced by the checks: gives each a folder of its own, and ends all processes that it started, however it ends.
[ "$(id -u)" = 0 ] || { echo "$0 needs root: it runs its processes in a namespace of their own" >&2; exit 1; }
work="$(mktemp -d "${TMPDIR:-/tmp}/kraft-check.XXXXXX")"
chmod 755 "$work"
# The guard outlives the check, even a killed one, and removes the check's files.
setsid bash -c 'tail --pid="$1" -f /dev/null; for _ in 1 2 3 4 5; do rm -rf "$2" && exit; sleep 1; done' \
    guard "$$" "$work" > /dev/null 2>&1 < /dev/null &

alone() { # alone [OPTION-OF-UNSHARE] COMMAND: run it in a process namespace that ends with the check
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc "$@"
}

tests() { # tests ARGUMENTS-OF-PYTEST: run tests; one that is skipped because a tool is missing fails here
    # the shell is process 1 in the namespace, and reaps orphans of tests
    alone bash -c '"$@"; exit $?' tests env KRAFT_DEPLOY_CHECK=1 \
        "${PYTHON:-.venv/bin/python}" -m pytest --basetemp="$work/tests" "$@"
}

debian() { # debian PACKAGE…: install them; package lists may never have been fetched on this machine
    command -v apt-get > /dev/null || { echo "$0 needs $*: install it" >&2; return 1; }
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "$@" > /dev/null 2>&1 && return
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "$@" > /dev/null
}
