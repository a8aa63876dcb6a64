#!/usr/bin/env bash
# kafka-topics by the command kraft.
exec python -m kraft.deploy.kafka_tools kafka-topics "$@"
