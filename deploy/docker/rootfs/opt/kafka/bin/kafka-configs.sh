#!/usr/bin/env bash
echo "kafka-configs is not in this image. Use: kraft configs --help" >&2
exit 1
