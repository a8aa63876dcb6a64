#!/usr/bin/env bash
# kafka-transactions by the command kraft.
exec python -m kraft.deploy.kafka_tools kafka-transactions "$@"
