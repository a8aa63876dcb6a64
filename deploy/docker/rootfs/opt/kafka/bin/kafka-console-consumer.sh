#!/usr/bin/env bash
# kafka-console-consumer by the command kraft.
exec python -m kraft.deploy.kafka_tools kafka-console-consumer "$@"
