#!/usr/bin/env bash
# The first process of a network and a process namespace of its own: run SCRIPT there.
set -o errexit -o nounset
ip link set lo up
exec bash -o errexit -o nounset -o pipefail "$@"
