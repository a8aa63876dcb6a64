#!/usr/bin/env bash
# Make a root filesystem from Debian packages, import it under the name of the Dockerfile's base, build, and print the sizes.
set -o errexit -o nounset -o pipefail
base="$(sed -n 's/^ARG BASE=//p' deploy/docker/Dockerfile)"
tar="${KRAFT_IMAGE_BASE:-$WORK/base.tar}"
if [ ! -s "$tar" ]; then
  echo "making the base from Debian packages: about two minutes"
  mmdebstrap --quiet --format=tar --mode=root --variant=minbase --include=python3-minimal,python3-venv,ca-certificates \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --aptopt='Apt::Install-Recommends "false"' \
    "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$WORK/made.tar"
  mv "$WORK/made.tar" "$tar"
fi
podman import --quiet "$tar" "$base" > /dev/null

# Use the package registry of this machine's pip, and the certificate authorities that this machine trusts.
options=()
certificates="${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}"
for file in "$certificates" /etc/pip.conf; do
  [ ! -f "$file" ] || options+=(--volume "$file:$file:ro")
done
echo "building $IMAGE"
buildah bud --quiet --pull-never --isolation chroot --format docker --env PIP_CERT="$certificates" "${options[@]}" \
  --file deploy/docker/Dockerfile --tag "$IMAGE" . > "$WORK/build.log" 2>&1 || { tail -40 "$WORK/build.log" >&2; exit 1; }

size() { podman image inspect --format '{{.Size}}' "$1"; }
whole="$(size "$IMAGE")" below="$(size "$base")"
echo "size: $((whole / 1000000)) MB, of which $(((whole - below) / 1000000)) MB above the base ($((below / 1000000)) MB here)"
