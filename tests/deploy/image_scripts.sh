#!/usr/bin/env bash
# Run the image's scripts over this machine's /etc, in a separate mount namespace: image_scripts.sh FOLDER PORT
# Prints the node's log; exits with the node's exit code. The node gets SIGTERM when it is ready.
set -o errexit -o nounset
folder="$1" client="$2" broker="$3" controller="$4"
mount -t tmpfs none "$folder"
mkdir "$folder"/{upper,work,bin}
mount -t overlay -o "lowerdir=/etc,upperdir=$folder/upper,workdir=$folder/work" none /etc
cp -r deploy/docker/rootfs/etc/. /etc/
cp deploy/docker/rootfs/opt/kafka/bin/kafka-storage.sh "$folder/bin/kafka-storage"
export PATH="$folder/bin:$PATH" CLUSTER_ID=MkU3OEVBNTcwNTJENDM2Qk
export KAFKA_PROCESS_ROLES=broker,controller KAFKA_NODE_ID=1 KAFKA_BROKER_ID=1 KAFKA_LOG_DIRS="$folder/data"
export KAFKA_LISTENERS="PLAINTEXT://0.0.0.0:$client,BROKER://0.0.0.0:$broker,CONTROLLER://0.0.0.0:$controller"
export KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://localhost:$client,BROKER://localhost:$broker"
export KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
export KAFKA_INTER_BROKER_LISTENER_NAME=BROKER KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER
export KAFKA_CONTROLLER_QUORUM_VOTERS="1@localhost:$controller" KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1
export KAFKA_LOG_FLUSH_INTERVAL_MESSAGES=9223372036854775807 KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0
export KAFKA_REST_BOOTSTRAP_SERVERS=unknown KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE=false
echo 'kafka-storage format --ignore-formatted -t "$(kafka-storage random-uuid)" -c /etc/kafka/kafka.properties' \
  >> /etc/confluent/docker/configure
coproc NODE { exec /etc/confluent/docker/run 2>&1; }
node="$NODE_PID"
while read -r line <&"${NODE[0]}"; do
  echo "$line"
  if [[ "$line" == *"[KafkaServer id="* ]]; then
    /etc/kafka/docker/healthcheck && echo "healthy"
    kill "$node"
    break
  fi
done
cat <&"${NODE[0]}" || true
wait "$node"
