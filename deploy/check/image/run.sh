#!/usr/bin/env bash
# Run the image: its default, with variables, with a read-only root filesystem; each must become ready and stop at SIGTERM.
set -o errexit -o nounset -o pipefail
ip link set lo up  # of this network namespace

fail() { echo "FAILED: $1" >&2; podman logs "${2:-node}" 2>&1 | tail -30 >&2; exit 1; }

start() { # start NAME ARGUMENTS-OF-PODMAN-RUN…: a container in the background, health checks by hand
  podman run --detach --quiet --network host --health-interval disable --name "$@" > /dev/null
}

# await_health NAME: wait until the image's health check, run by podman, passes; fail after 60 s
await_health() {
  local began=$SECONDS
  until podman healthcheck run "$1" > /dev/null 2>&1; do
    [ "$(podman inspect --format '{{.State.Running}}' "$1")" = true ] || fail "$1 ended before it was healthy" "$1"
    [ $((SECONDS - began)) -lt 60 ] || fail "$1 is not healthy after 60 s" "$1"
    sleep 0.2
  done
}

# stop NAME: send SIGTERM; the node must end by itself with code 0 and log a clean stop
stop() {
  podman kill --signal TERM "$1" > /dev/null
  [ "$(timeout 60 podman wait "$1")" = 0 ] || fail "$1 did not end with code 0 within 60 s of SIGTERM" "$1"
  podman logs "$1" 2>&1 | grep "the node has stopped" > /dev/null || fail "$1 did not stop cleanly" "$1"
  podman rm --force "$1" > /dev/null
}

inside() { podman exec "$1" sh -c "$2"; }

round_trip() { # round_trip NAME PORT
  inside "$1" "echo hello | kraft produce orders --bootstrap localhost:$2 && kraft consume orders -n 1 --bootstrap localhost:$2" \
    | grep hello > /dev/null || fail "$1: the record was not read back" "$1"
}

start node "$IMAGE"
await_health node
[ "$(inside node 'id -u')" = 1000 ] || fail "the node does not run as user 1000"
for line in "Transitioning from RECOVERY to RUNNING" "Kafka Server started" "[KafkaServer id=1] started"; do
  [ "$(podman logs node 2>&1 | grep -cF "$line")" = 1 ] || fail "the line '$line' is not in the log exactly once"
done
round_trip node 9092
stop node
echo "ok: single node by default, user 1000, healthy, a record produced and consumed, SIGTERM"

start node --env KAFKA_NODE_ID=7 --env KAFKA_PROCESS_ROLES=broker,controller --env KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER \
  --env KAFKA_LISTENERS=PLAINTEXT://:19092,CONTROLLER://:19093 --env KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:19092 \
  --env KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT \
  --env KAFKA_CONTROLLER_QUORUM_VOTERS=7@localhost:19093 --env KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1 \
  --env KAFKA_LOG_RETENTION_MS=123456789 --env CLUSTER_ID=MkU3OEVBNTcwNTJENDM2Qk --env KRAFT_ADMIN_LISTENER=127.0.0.1:9404 \
  --env KAFKA_HEAP_OPTS=-Xmx1G --env KAFKA_LOG4J_ROOT_LOGLEVEL=DEBUG "$IMAGE"
await_health node
inside node '/etc/kafka/docker/healthcheck' | grep . > /dev/null || fail "/ready returned nothing"
curl --silent --fail http://127.0.0.1:9404/ready > /dev/null || fail "/ready does not return 200"
inside node 'kraft configs describe --broker 7 --bootstrap localhost:19092' | grep 123456789 > /dev/null || fail "KAFKA_LOG_RETENTION_MS has no effect"
podman logs node 2>&1 | grep "KAFKA_HEAP_OPTS is ignored" > /dev/null || fail "no message that KAFKA_HEAP_OPTS is ignored"
round_trip node 19092
stop node
echo "ok: KAFKA_* and KRAFT_* variables, health check by /ready"

podman volume create data > /dev/null
writable=(--read-only --tmpfs /tmp --tmpfs /opt/kafka/config --volume data:/var/lib/kafka/data)
start node "${writable[@]}" "$IMAGE"
await_health node
round_trip node 9092
stop node
start node "${writable[@]}" "$IMAGE"
await_health node
inside node 'kraft consume orders -n 1 --bootstrap localhost:9092' | grep hello > /dev/null || fail "the volume lost the record"
stop node
echo "ok: read-only root filesystem, the record survives a restart"

start node --env KAFKA_LOG4J_LOGGERS=kafka.server=DEBUG,kraft.controller=ERROR "$IMAGE"
await_health node
inside node 'kafka-topics --create --topic tools --partitions 2 --bootstrap-server localhost:9092
  kafka-configs --alter --topic tools --add-config retention.ms=7654321 --bootstrap-server localhost:9092
  echo k:v | kafka-console-producer --topic tools --property parse.key=true --property key.separator=: --bootstrap-server localhost:9092
  kafka-console-consumer.sh --topic tools --group g --from-beginning --max-messages 1 --property print.key=true --bootstrap-server localhost:9092
  kafka-topics --describe --topic tools --bootstrap-server localhost:9092
  kafka-consumer-groups --describe --group g --bootstrap-server localhost:9092' > "$WORK/tools.log" 2>&1 || fail "a tool failed: $(cat "$WORK/tools.log")"
for text in $'k\tv' 7654321; do grep -F "$text" "$WORK/tools.log" > /dev/null || fail "no '$text' in $(cat "$WORK/tools.log")"; done
(inside node 'kafka-dump-log --files x' 2>&1 || true) | grep "kraft log" > /dev/null || fail "kafka-dump-log does not name kraft log"
podman logs node 2>&1 | grep "KAFKA_LOG4J_LOGGERS: kafka.server is ignored" > /dev/null || fail "no message that a logger of the JVM is ignored"
[ "$(podman logs node 2>&1 | grep -c "active controller")" = 0 ] || fail "kraft.controller=ERROR has no effect"
stop node
echo "ok: kafka-topics, -configs, -console-producer, -console-consumer, -consumer-groups; levels of loggers"

mkdir -p "$WORK/secrets"
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext subjectAltName=DNS:localhost -days 2 \
  -keyout "$WORK/secrets/key.pem" -out "$WORK/secrets/cert.pem" 2> /dev/null
cat "$WORK/secrets/key.pem" "$WORK/secrets/cert.pem" > "$WORK/secrets/node.pem"
printf '\xfe\xed\xfe\xed' > "$WORK/secrets/node.jks"
chmod 644 "$WORK"/secrets/*
tls=(--volume "$WORK/secrets:/etc/kafka/secrets:ro" --env KAFKA_NODE_ID=1 --env KAFKA_PROCESS_ROLES=broker,controller
  --env KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER --env KAFKA_LISTENERS=SSL://:9092,CONTROLLER://:9093
  --env KAFKA_ADVERTISED_LISTENERS=SSL://localhost:9092 --env KAFKA_INTER_BROKER_LISTENER_NAME=SSL
  --env KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=SSL:SSL,CONTROLLER:PLAINTEXT --env CLUSTER_ID=MkU3OEVBNTcwNTJENDM2Qk
  --env KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:9093 --env KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1
  --env KAFKA_SSL_TRUSTSTORE_LOCATION=/etc/kafka/secrets/cert.pem --env KAFKA_SSL_TRUSTSTORE_TYPE=PEM)
start node "${tls[@]}" --env KAFKA_SSL_KEYSTORE_FILENAME=node.pem "$IMAGE"
await_health node
inside node 'kraft topics list --bootstrap localhost:9092 --tls-ca /etc/kafka/secrets/cert.pem' > /dev/null || fail "no response over TLS"
stop node
start node "${tls[@]}" --env KAFKA_SSL_KEYSTORE_FILENAME=node.jks "$IMAGE"
[ "$(timeout 60 podman wait node)" != 0 ] || fail "a JKS store is not refused"
podman logs node 2>&1 | grep "keytool -importkeystore -srckeystore /etc/kafka/secrets/node.jks" > /dev/null || fail "no command that converts the store"
podman rm --force node > /dev/null
echo "ok: TLS with a PEM store; a JKS store is refused with the command that converts it"
