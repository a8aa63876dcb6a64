"""The environment of a run for its report: versions of software, and properties of the machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def environment_of(**others: str) -> dict[str, str]:
    """Return name → version or size. `others` are entries that come first: those of the cluster, the client, the
    proxy."""
    return {
        **others,
        "pykraft": _version("pykraft"),
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processors": f"{os.cpu_count()} × {_processor()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
