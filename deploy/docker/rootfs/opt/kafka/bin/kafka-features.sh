#!/usr/bin/env bash
echo "kafka-features is not in this image. Use: kraft features --help" >&2
exit 1
