#!/usr/bin/env bash
# Build the image without a registry of images and without Docker, run it, and let testcontainers and podman-compose start it.
#
#   deploy/check/image.sh [run | testcontainers | compose]…     all three when none is named
#
# Debian packages make the base and bring the tools (podman, buildah, runc, mmdebstrap, netavark, aardvark-dns); needs root.
# Everything lies in one folder under TMPDIR. What runs has process ids, mounts and, after the build, a network of its own.
# All of that ends with this script, also when it is killed. KRAFT_IMAGE_BASE=FILE keeps the base's tar archive there for
# the next run, which is two minutes shorter then.
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
  alone --net "$parts/$part.sh"
done
