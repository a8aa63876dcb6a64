#!/usr/bin/env bash
# kafka-dump-log by the command kraft.
exec python -m kraft.deploy.kafka_tools kafka-dump-log "$@"
