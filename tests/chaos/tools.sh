#!/usr/bin/env bash
# What chaos scenarios and their tests use beyond Python: toxiproxy's server, built once into the user's cache, and from
# Debian's packages libfaketime, iproute2 and nftables. Quick when nothing is to be done. Where packages cannot be
# installed, the scenarios that need them say so, and their tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."

missing=()
compgen -G '/usr/lib/*/faketime/libfaketime*.so.1' > /dev/null || missing+=(libfaketime)
PATH="$PATH:/usr/sbin:/sbin" command -v tc > /dev/null || missing+=(iproute2)
PATH="$PATH:/usr/sbin:/sbin" command -v nft > /dev/null || missing+=(nftables)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" > /dev/null
  else
    echo "not installed: ${missing[*]}; clocks and network namespaces cannot be broken here" >&2
  fi
fi
.venv/bin/python -c 'from kraft.sim.chaos.proxies.binary import toxiproxy_binary; toxiproxy_binary(print)'
