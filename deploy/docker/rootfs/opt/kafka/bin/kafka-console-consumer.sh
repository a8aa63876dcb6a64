#!/usr/bin/env bash
echo "kafka-console-consumer is not in this image. Use: kraft consume --help" >&2
exit 1
