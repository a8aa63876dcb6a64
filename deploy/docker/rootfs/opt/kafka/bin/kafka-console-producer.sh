#!/usr/bin/env bash
echo "kafka-console-producer is not in this image. Use: kraft produce --help" >&2
exit 1
