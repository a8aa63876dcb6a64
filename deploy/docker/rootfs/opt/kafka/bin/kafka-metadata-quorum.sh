#!/usr/bin/env bash
# kafka-metadata-quorum by the command kraft.
exec python -m kraft.deploy.kafka_tools kafka-metadata-quorum "$@"
