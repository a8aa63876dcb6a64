"""The process of a node, for its admin listener: the package's version, and what Prometheus' client libraries tell of
their process under their names. Source: Prometheus' page
on writing client libraries, "Process metrics"; proc(5)."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

_DESCRIPTORS = "/proc/self/fd"
_STATM = "/proc/self/statm"


def process_text() -> Iterator[str]:
    """The lines, in pieces; without those that this system does not tell."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield _line(
        "process_cpu_seconds_total", "counter", "Processor time, user and system.", used.ru_utime + used.ru_stime
    )
    yield _line(
        "process_max_fds", "gauge", "Descriptors that may be open.", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    )
    try:
        with open(_STATM, "rb") as statm:
            resident_pages = int(statm.read().split()[1])
        descriptors = os.stat(_DESCRIPTORS).st_size or len(os.listdir(_DESCRIPTORS))  # older kernels tell no size
    except OSError:
        return
    resident = resident_pages * resource.getpagesize()
    yield _line("process_resident_memory_bytes", "gauge", "Resident memory, shared pages included.", resident)
    yield _line("process_open_fds", "gauge", "Descriptors that are open.", descriptors)


def package_version() -> str:
    """The installed version of this package."""
    from importlib.metadata import PackageNotFoundError, version  # the start of a node does without

    try:
        return version("pykraft")
    except PackageNotFoundError:
        return "unknown"


def _line(name: str, kind: str, text: str, value: float) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name} {float(value)!r}\n"
