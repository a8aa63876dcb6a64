#!/usr/bin/env bash
# Install the Debian packages that the check of the image needs and the machine lacks.
set -o errexit -o nounset
missing=()
for pair in openssl:openssl podman:podman buildah:buildah runc:runc mmdebstrap:mmdebstrap iptables:iptables curl:curl mvn:maven npm:npm; do
  command -v "${pair%%:*}" > /dev/null || missing+=("${pair#*:}")
done
for part in netavark aardvark-dns; do [ -x "/usr/lib/podman/$part" ] || missing+=("$part"); done
[ ${#missing[@]} -gt 0 ] || exit 0
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
