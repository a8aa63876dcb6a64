#!/usr/bin/env bash
# Apache Kafka to test against, from the artifacts that its project publishes. kraft.sim.chaos.apache.kafka_nodes starts it.
#   kafka.sh install            fetch it with Maven, compare every file with its checksum, print the folder; idempotent
#   kafka.sh tool CLASS ARGS    run one of Kafka's command-line classes
# Version and dependencies are pinned in kafka/pom.xml, checksums in kafka/jars.sha256. Needs Java 17 and Maven
# (tools.sh installs them). KAFKA_CACHE: where it is kept, $HOME/.cache/pykraft/kafka by default.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)/kafka"
source "$here/../jars.sh"
home="${KAFKA_CACHE:-${HOME:-/tmp}/.cache/pykraft/kafka}/$(jars_sum "$here")"

install() {
  fetch_jars "$here" "$home"
}

kafka() { # JVM options, class, arguments
  local options="$1"
  shift
  # shellcheck disable=SC2086
  exec java $options -Dlog4j2.configurationFile="$here/../../../sim/chaos/apache/kafka_log4j2.properties" -cp "$home/libs/*" "$@"
}

verb="${1:-help}"
shift || true
case "$verb" in
  install) install; echo "$home" ;;
  tool) install; kafka "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx512m" "$@" ;;
  *) sed -n '2,6p' "$0" ;;
esac
