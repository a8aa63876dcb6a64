#!/usr/bin/env bash
echo "kafka-reassign-partitions is not in this image. Use: kraft partitions --help" >&2
exit 1
