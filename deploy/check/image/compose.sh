#!/usr/bin/env bash
# The compose files by podman-compose: one node, then three controllers and three brokers, one of which is stopped.
set -o errexit -o nounset -o pipefail
ip link set lo up  # of this network namespace
export KRAFT_IMAGE="$IMAGE"
compose() { "$WORK/compose/bin/podman-compose" --file "deploy/docker/$1" --project-name check "${@:2}"; }
monitored() { compose docker-compose.cluster.yml --file deploy/docker/docker-compose.monitoring.yml "$@"; }

fail() {
  echo "FAILED: $1" >&2
  for name in $(podman ps --all --format '{{.Names}}'); do echo "-- $name" >&2; podman logs "$name" 2>&1 | tail -8 >&2; done
  exit 1
}

# record_through CONTAINER SERVERS TOPIC-OPTIONS…: a topic, one record in and out, within a minute
record_through() {
  local script="kraft topics create orders --bootstrap $2 ${*:3} && echo hello | kraft produce orders --bootstrap $2 \
    && kraft consume orders -n 1 --bootstrap $2"
  podman exec "$1" timeout 60 sh -c "until kraft brokers --bootstrap $2 > /dev/null 2>&1; do sleep 0.5; done; $script" \
    | grep hello > /dev/null || fail "no record through $1"
}

compose docker-compose.yml up --detach > "$WORK/compose.log" 2>&1 || { cat "$WORK/compose.log" >&2; fail "docker-compose.yml"; }
record_through check_kraft_1 localhost:9092
compose docker-compose.yml down --volumes > "$WORK/compose.log" 2>&1
echo "ok: docker-compose.yml"

compose docker-compose.cluster.yml up --detach > "$WORK/compose.log" 2>&1 \
  || { cat "$WORK/compose.log" >&2; fail "docker-compose.cluster.yml"; }
record_through check_broker-4_1 broker-4:9092 --partitions 3 --replication-factor 3
podman exec check_broker-4_1 kraft topics describe orders --bootstrap broker-4:9092
compose docker-compose.cluster.yml down --volumes > "$WORK/compose.log" 2>&1
echo "ok: docker-compose.cluster.yml"

# Debian's Prometheus under the image name in the compose file, as there is no registry.
stand_in="$(sed -n 's/^ *image: \(.*prometheus:.*\)/\1/p' deploy/docker/docker-compose.monitoring.yml)"
container="$(buildah from --pull-never "$(sed -n 's/^ARG BASE=//p' deploy/docker/Dockerfile)")"
buildah copy --quiet "$container" "$WORK/prometheus/usr/bin/prometheus" /bin/prometheus > /dev/null
buildah config --entrypoint '["/bin/prometheus", "--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/tmp/series"]' \
  --cmd '' "$container"
buildah commit --quiet "$container" "$stand_in" > /dev/null
nodes=(controller-1 controller-2 controller-3 broker-4 broker-5 broker-6)
monitored up --detach "${nodes[@]}" prometheus console > "$WORK/compose.log" 2>&1 \
  || { cat "$WORK/compose.log" >&2; fail "docker-compose.monitoring.yml"; }
asked() { podman exec check_prometheus_1 python3 -c "import urllib.request as r; print(r.urlopen('$1').read().decode())"; }
began=$SECONDS
until [ "$(asked http://localhost:9090/api/v1/targets 2> /dev/null | grep -o '"health":"up"' | wc -l)" = 6 ]; do
  [ $((SECONDS - began)) -lt 120 ] || fail "Prometheus does not reach six nodes"
  sleep 1
done
asked http://localhost:9090/api/v1/rules | grep KafkaUnderReplicatedPartitions > /dev/null || fail "Prometheus has no rules"
asked http://console:8080/ | grep -i '<title>' > /dev/null || fail "the console does not respond"
monitored down --volumes > "$WORK/compose.log" 2>&1 || true  # no container of Grafana: its image is only in a registry
echo "ok: docker-compose.monitoring.yml, without Grafana"
