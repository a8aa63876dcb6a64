# Sourced by the checks: a folder of their own, and an end of all that they start, however the check ends.
[ "$(id -u)" = 0 ] || { echo "$0 needs root: what it starts runs in a process namespace of its own" >&2; exit 1; }
work="$(mktemp -d "${TMPDIR:-/tmp}/kraft-check.XXXXXX")"
chmod 755 "$work"
# The guard outlives the check, also one that is killed, and removes what it made.
setsid bash -c 'tail --pid="$1" -f /dev/null; for _ in 1 2 3 4 5; do rm -rf "$2" && exit; sleep 1; done' \
    guard "$$" "$work" > /dev/null 2>&1 < /dev/null &

alone() { # alone [OPTION-OF-UNSHARE] COMMAND: in a process namespace that ends with the check
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc "$@"
}

tests() { # tests ARGUMENTS-OF-PYTEST: a test that is skipped for want of a tool fails here
    # the shell is process 1 there, and reaps what a test leaves
    alone bash -c '"$@"; exit $?' tests env KRAFT_DEPLOY_CHECK=1 \
        "${PYTHON:-.venv/bin/python}" -m pytest --basetemp="$work/tests" "$@"
}

debian() { # debian PACKAGE…: install them, on a machine that may never have asked for lists of packages
    command -v apt-get > /dev/null || { echo "$0 needs $*: install it" >&2; return 1; }
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "$@" > /dev/null 2>&1 && return
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "$@" > /dev/null
}
