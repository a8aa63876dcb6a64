#!/usr/bin/env bash
echo "kafka-consumer-groups is not in this image. Use: kraft groups --help" >&2
exit 1
