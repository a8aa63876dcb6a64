#!/usr/bin/env bash
# Apache Kafka to test against: one combined broker and controller, from the artifacts that its project publishes.
#   kafka.sh install            fetch it with Maven, compare every file with its checksum, print the folder; idempotent
#   kafka.sh start DIR PORT     format DIR and run a node in it, listening on 127.0.0.1:PORT (controller: PORT + 1)
#   kafka.sh stop DIR           end that node
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
  exec java $options -Dlog4j2.configurationFile="$here/log4j2.properties" -cp "$home/libs/*" "$@"
}

start() {
  local dir="$1" port="$2"
  install
  mkdir -p "$dir"
  cat > "$dir/server.properties" <<CONF
process.roles=broker,controller
node.id=1
log.dirs=$dir/data
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.bootstrap.servers=127.0.0.1:$((port + 1))
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
CONF
  local quick="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx256m"
  (kafka "$quick" kafka.tools.StorageTool format --standalone -t "$(kafka "$quick" kafka.tools.StorageTool random-uuid)" \
    -c "$dir/server.properties" > "$dir/format.log" 2>&1) || { cat "$dir/format.log" >&2; exit 1; }
  (
    cd "$dir"
    kafka "-XX:+UseSerialGC -Xms256m -Xmx512m" kafka.Kafka server.properties > server.log 2>&1 < /dev/null &
    echo $! > pid
  )
}

stop() {
  local pid
  pid="$(cat "$1/pid")"
  kill "$pid" 2> /dev/null || true
  for _ in $(seq 100); do
    kill -0 "$pid" 2> /dev/null || return 0
    sleep 0.1
  done
  kill -KILL "$pid" 2> /dev/null || true
}

verb="${1:-help}"
shift || true
case "$verb" in
  install) install && echo "$home" ;;
  start) start "$@" ;;
  stop) stop "$@" ;;
  tool) install && kafka "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx512m" "$@" ;;
  *) sed -n '2,8p' "$0" ;;
esac
