#!/usr/bin/env bash
echo "kafka-dump-log is not in this image. Use: kraft log --help" >&2
exit 1
