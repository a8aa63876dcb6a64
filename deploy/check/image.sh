#!/usr/bin/env bash
# Build the image without a registry of images and without Docker, run it, and let testcontainers and podman-compose start it.
#
#   deploy/check/image.sh [run | testcontainers | compose]…     all three when none is named
#
# Debian packages provide the base and the tools (podman, buildah, runc, mmdebstrap, netavark, aardvark-dns); needs root.
# Everything is in one folder under TMPDIR. Processes run in a namespace of process ids, mounts and, after the build, network.
# All of that ends with this script, even if it is killed. KRAFT_IMAGE_BASE=FILE keeps the base's tar archive there for
# the next run, which then takes two minutes less.
set -o errexit -o nounset -o pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
parts="$root/deploy/check/image"
cd "$root"
. deploy/check/alone.bash
export WORK="$work" IMAGE=localhost/kraft:8.1.0
"$parts/tools.sh"
. "$parts/engine.sh"

alone "$parts/build.sh"
[ $# -gt 0 ] || set -- run testcontainers compose
for part in "$@"; do
  echo "== image: $part"
  [ ! -x "$parts/$part-install.sh" ] || alone "$parts/$part-install.sh"
  # netavark keeps the addresses and names of containers in /run/containers, also of those that were killed.
  alone --net bash -c 'mkdir -p /run/containers && mount -t tmpfs tmpfs /run/containers && exec "$0"' "$parts/$part.sh"
done
