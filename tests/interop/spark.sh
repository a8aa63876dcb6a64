#!/usr/bin/env bash
# Spark's own Kafka connector to test against, from the artifacts that its project publishes, for the pyspark of this
# environment: fetch it with Maven, compare every file with its checksum, print the folder of the jars; idempotent.
# Versions are pinned in spark/pom.xml, checksums in spark/jars.sha256. Needs Java 17 and Maven (tools.sh installs them).
# SPARK_JARS_CACHE: where it is kept, $HOME/.cache/pykraft/spark by default.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)/spark"
source "$here/../jars.sh"
home="${SPARK_JARS_CACHE:-${HOME:-/tmp}/.cache/pykraft/spark}/$(jars_sum "$here")"
fetch_jars "$here" "$home"
echo "$home/libs"
