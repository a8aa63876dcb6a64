#!/usr/bin/env bash
echo "kafka-topics is not in this image. Use: kraft topics --help" >&2
exit 1
