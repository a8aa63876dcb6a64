#!/usr/bin/env bash
# kafka-storage {random-uuid | format -t ID -c FILE [--ignore-formatted]} by `kraft storage`.
set -o nounset -o errexit
verb="${1:-}"
[ $# -eq 0 ] || shift
case "$verb" in
  random-uuid) exec kraft storage random-uuid ;;
  format | info)
    words=()
    while [ $# -gt 0 ]; do
      case "$1" in
        -t | --cluster-id) words+=(--cluster-id "$2"); shift 2 ;;
        -c | --config) words+=(--config "$2"); shift 2 ;;
        -g) words+=(--ignore-formatted); shift ;;
        -s) words+=(--standalone); shift ;;
        -N) words+=(--no-initial-controllers); shift ;;
        -I) words+=(--initial-controllers "$2"); shift 2 ;;
        *) words+=("$1"); shift ;;
      esac
    done
    [ "$verb" = info ] || words+=(--ignore-unknown)
    exec kraft storage "$verb" "${words[@]}" ;;
  *) echo "kafka-storage: expected random-uuid, format or info; see: kraft storage --help" >&2; exit 1 ;;
esac
