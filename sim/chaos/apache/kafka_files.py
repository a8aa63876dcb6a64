"""The files of an Apache Kafka release: where they are found, and the command lines that run its Java classes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from kraft.sim.shapes import ClusterError

HOME_VARIABLE = "KRAFT_KAFKA_HOME"
CACHE_VARIABLE = "KAFKA_CACHE"
LOGGING = Path(__file__).with_name("kafka_log4j2.properties")
"""Logging configuration: warnings and errors, on stdout."""
BROKER_HEAP, CONTROLLER_HEAP = "1G", "512M"
NODE_JVM = (
    *("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    *("-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
)
"""Java options of Kafka's own start scripts."""
TOOL_JVM = ("-Xmx512M", "-XX:+UseG1GC")
QUICK_JVM = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java options for tools that run only briefly: the JVM starts quickly and works slowly."""
QUICK_NODE_JVM = (*QUICK_JVM, "-Xmx512M")


def libraries_of(folder: Path) -> Path:
    """Return the folder of jars of a Kafka release: `libs` in its folder, or that folder itself. ClusterError if it
    holds no jars."""
    for candidate in (folder / "libs", folder):
        if any(candidate.glob("kafka_2.*.jar")) and any(candidate.glob("kafka-clients-*.jar")):
            return candidate
    if not folder.is_dir():
        raise ClusterError(f"{folder}: there is no such folder; expected the folder of an unpacked Kafka release")
    raise ClusterError(
        f"{folder} has no Kafka in it: expected kafka_2.*.jar and kafka-clients-*.jar there or in its folder libs, as"
        " in an unpacked release from https://kafka.apache.org/downloads"
    )


def find_libraries(given: Path | None = None) -> Path:
    """Return the folder of Kafka's jars. Searched in this order: the given folder, the folder that KRAFT_KAFKA_HOME
    names, the release that this repository's own tests asked for last. Raises ClusterError if there is none, or no
    `java`."""
    if shutil.which("java") is None:
        raise ClusterError(
            "Apache Kafka needs java, version 17 or newer, on the PATH; Debian has openjdk-17-jre-headless"
        )
    named = given or (Path(os.environ[HOME_VARIABLE]) if os.environ.get(HOME_VARIABLE) else None)
    if named is not None:
        return libraries_of(named)
    cache = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "pykraft" / "kafka")
    fetched = sorted(cache.glob("*/.complete"), key=lambda path: path.stat().st_mtime)
    if fetched:
        return libraries_of(fetched[-1].parent)
    raise ClusterError(
        "which Apache Kafka? Name the folder of an unpacked release, from https://kafka.apache.org/downloads, with"
        f" --kafka DIR or {HOME_VARIABLE}"
    )


def version_of(libraries: Path) -> str:
    """Return the release's version, read from its file names."""
    (first, *_) = sorted(libraries.glob("kafka-clients-*.jar"))
    return first.stem.removeprefix("kafka-clients-")


def java(libraries: Path, options: Iterable[str], *words: str) -> list[str]:
    """Return the command that runs one of Kafka's classes."""
    return ["java", *options, f"-Dlog4j2.configurationFile={LOGGING}", "-cp", f"{libraries}/*", *words]
