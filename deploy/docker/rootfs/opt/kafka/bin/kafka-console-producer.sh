#!/usr/bin/env bash
# kafka-console-producer by the command kraft.
exec python -m kraft.deploy.kafka_tools kafka-console-producer "$@"
