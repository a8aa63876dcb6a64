#!/usr/bin/env bash
# kafka-consumer-groups by the command kraft.
exec python -m kraft.deploy.kafka_tools kafka-consumer-groups "$@"
