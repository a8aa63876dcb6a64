#!/usr/bin/env bash
echo "kafka-metadata-quorum is not in this image. Use: kraft quorum --help" >&2
exit 1
