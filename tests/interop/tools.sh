#!/usr/bin/env bash
# Installs what the foreign clients need and the machine lacks: kcat, a JDK and Maven, from Debian's packages.
set -euo pipefail
missing=()
command -v kcat > /dev/null || missing+=(kcat)
command -v javac > /dev/null || missing+=(default-jdk-headless)
command -v mvn > /dev/null || missing+=(maven)
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
sudo=""
if [ "$(id -u)" -ne 0 ]; then sudo=sudo; fi
if ! command -v apt-get > /dev/null; then
  echo "install ${missing[*]} with this system's package manager, then run make interop again" >&2
  exit 1
fi
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" > /dev/null
