#!/usr/bin/env bash
# Apache Kafka to test against, from the artifacts that its project publishes. kraft.sim.chaos.apache.kafka_nodes starts it.
#   kafka.sh install            fetch it with Maven, compare every file with its checksum, print the folder; idempotent
#   kafka.sh tool CLASS ARGS    run one of Kafka's command-line classes
# Version and dependencies are pinned in kafka/pom.xml, checksums in kafka/jars.sha256. Needs Java 17 and Maven
# (tools.sh installs them). KAFKA_CACHE: where it is kept, $HOME/.cache/pykraft/kafka by default.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)/kafka"
sum="$(cat "$here/pom.xml" "$here/jars.sha256" | sha256sum | cut -c1-12)"
home="${KAFKA_CACHE:-${HOME:-/tmp}/.cache/pykraft/kafka}/$sum"

install() {
  if [ -e "$home/.complete" ]; then return 0; fi
  mkdir -p "$home"
  local fresh
  fresh="$(mktemp -d "$home/fetch.XXXXXX")"
  mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$fresh" >&2
  (cd "$fresh" && sha256sum --quiet --check "$here/jars.sha256") >&2
  if [ "$(ls "$fresh" | wc -l)" -ne "$(wc -l < "$here/jars.sha256")" ]; then
    echo "Maven brought files that kafka/jars.sha256 does not list" >&2
    exit 1
  fi
  rm -rf "$home/libs"
  mv "$fresh" "$home/libs"
  touch "$home/.complete"
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
  install) install && echo "$home" ;;
  tool) install && kafka "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx512m" "$@" ;;
  *) sed -n '2,6p' "$0" ;;
esac
