"""Synchronous: find and check the Java that Spark will run, before Spark is started.

Spark's start script runs `$JAVA_HOME/bin/java`, or the `java` of PATH if JAVA_HOME is not set; so does this module.
Spark 4 needs Java 17 or newer. Source: Spark's bin/spark-class.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

OLDEST_MAJOR = 17
RUN_SECONDS_MAX = 60
_JAVA_FOLDER = Path("/usr/lib/jvm")
"""Folder with a subfolder for each Java that Debian, Fedora and related distributions install."""
_GET_ONE = (
    f"Install one, for example with `apt install openjdk-{OLDEST_MAJOR}-jre-headless` or from https://adoptium.net, "
    "and put it on PATH or set JAVA_HOME to its folder"
)


class SparkNotReady(RuntimeError):
    """Spark cannot start because something that it needs is missing on this machine. The message explains what
    to do."""


class JavaMissing(SparkNotReady):
    """Spark would find no Java, or a Java that does not run."""


class JavaTooOld(SparkNotReady):
    """Spark would run a Java older than 17."""


@dataclass(frozen=True, slots=True)
class Java:
    """An installed Java that runs. `version` is as printed, for example 17.0.15; `major` is its major version, here 17
    (8 for 1.8.0_392)."""

    path: Path
    version: str
    major: int


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the Java that Spark will run in this environment. Raises JavaMissing or JavaTooOld if Spark would fail
    with it."""
    path = _chosen(environment)
    printed = _printed_version(path)
    version = version_of(printed)
    if version is None:
        raise JavaMissing(f"{path} -version does not print a version of Java, but {printed[:200]!r}. {_advice()}")
    java = Java(path, version, major_of(version))
    if java.major < OLDEST_MAJOR:
        raise JavaTooOld(
            f"Spark needs Java {OLDEST_MAJOR} or newer, but {path}{_why(environment)} is Java {version}. {_advice()}"
        )
    return java


def version_of(printed: str) -> str | None:
    """Return the version in the output of `java -version`, or None if the output has none."""
    found = re.search(r'^\S+ version "([0-9][^"]*)"', printed, re.MULTILINE)
    return found.group(1) if found else None


def major_of(version: str) -> int:
    """Return the major version: 17 for `17.0.15`, `17` and `17-ea`; 8 for `1.8.0_392`, the numbering up to Java 8."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _chosen(environment: Mapping[str, str]) -> Path:
    home = environment.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            raise JavaMissing(
                f"JAVA_HOME is {home}, but there is no program {path}. Set JAVA_HOME to the folder of Java "
                f"{OLDEST_MAJOR} or newer, or unset it to use the java of PATH"
            )
        return path
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found is None:
        raise JavaMissing(
            f"Spark needs Java {OLDEST_MAJOR} or newer, but PATH has no java and JAVA_HOME is not set. {_advice()}"
        )
    return Path(found)


def _printed_version(path: Path) -> str:
    try:
        done = subprocess.run(
            [path, "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise JavaMissing(f"{path} does not run: {failure}. {_advice()}") from failure
    printed = done.stdout.decode(errors="replace")
    if done.returncode:
        raise JavaMissing(f"{path} -version ended with {done.returncode}: {printed[:200]!r}. {_advice()}")
    return printed


def _why(environment: Mapping[str, str]) -> str:
    return f" (JAVA_HOME is {environment['JAVA_HOME']})" if environment.get("JAVA_HOME") else " (the first of PATH)"


def _advice() -> str:
    fit = _newest_suitable(_JAVA_FOLDER)
    return f"This machine has one that Spark takes: export JAVA_HOME={fit}" if fit else _GET_ONE


def _newest_suitable(folder: Path) -> Path | None:
    """Return the newest Java in the subfolders of `folder` that Spark can run, by the version in each Java's file
    `release`."""
    fit = []
    for release in folder.glob("*/release"):
        found = re.search(r'^JAVA_VERSION="([0-9][^"]*)"', release.read_text(errors="replace"), re.MULTILINE)
        if found and major_of(found.group(1)) >= OLDEST_MAJOR and os.access(release.parent / "bin" / "java", os.X_OK):
            fit.append((major_of(found.group(1)), release.parent))
    return max(fit)[1] if fit else None
