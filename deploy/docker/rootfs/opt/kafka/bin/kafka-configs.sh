#!/usr/bin/env bash
# kafka-configs by the command kraft.
exec python -m kraft.deploy.kafka_tools kafka-configs "$@"
