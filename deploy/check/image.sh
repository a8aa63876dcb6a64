#!/usr/bin/env bash
# Build the image without a registry of images and without Docker, run it, and let testcontainers and podman-compose start it.
#
#   deploy/check/image.sh [run | testcontainers | compose]…     all three when none is named
#
# Debian packages make the base (podman, buildah, runc, mmdebstrap, netavark and aardvark-dns are installed if they are missing; root).
# Everything lies in one folder under TMPDIR, and what runs has a network and process ids of its own: both vanish with this
# script, also when it is killed. KRAFT_IMAGE_BASE=FILE keeps the base's tar archive there for the next run (100 s less).
set -o errexit -o nounset -o pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
parts="$root/deploy/check/image"
cd "$root"
[ "$(id -u)" = 0 ] || { echo "image.sh needs root: the base is made of Debian packages in a chroot" >&2; exit 1; }
"$parts/tools.sh"

work="$(mktemp -d "${TMPDIR:-/tmp}/kraft-image.XXXXXX")"
# The guard outlives this script, however that ends, and removes what it made.
setsid bash -c '
  tail --pid="$1" -f /dev/null
  for _ in 1 2 3 4 5; do rm -rf --one-file-system "$2" && break; sleep 1; done
  rm -rf "$2"' guard "$$" "$work" > /dev/null 2>&1 < /dev/null &
export WORK="$work" IMAGE=localhost/kraft:8.1.0
. "$parts/engine.sh"
"$parts/build.sh"

[ $# -gt 0 ] || set -- run testcontainers compose
for part in "$@"; do
  [ ! -x "$parts/$part-install.sh" ] || "$parts/$part-install.sh"
done
for part in "$@"; do
  echo "== image: $part"
  unshare --net --mount --pid --fork --kill-child --mount-proc "$parts/alone.sh" "$parts/$part.sh"
done
