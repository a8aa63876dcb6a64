#!/usr/bin/env bash
# kafka-reassign-partitions by the command kraft.
exec python -m kraft.deploy.kafka_tools kafka-reassign-partitions "$@"
