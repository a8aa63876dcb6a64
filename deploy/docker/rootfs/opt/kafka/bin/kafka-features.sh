#!/usr/bin/env bash
# kafka-features by the command kraft.
exec python -m kraft.deploy.kafka_tools kafka-features "$@"
