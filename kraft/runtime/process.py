"""Process statistics from the kernel: CPU, memory, descriptors, and I/O. Source: proc(5).

A process without free descriptors cannot open the kernel's files. Unknown values are then NaN, and the number of open
descriptors is the limit.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Callable, Mapping
from errno import EMFILE
from functools import cache, partial
from types import MappingProxyType

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _statm(place: int) -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[place]) * _PAGE_BYTES


@cache
def _start_seconds() -> float:
    """Return the process's start time, in seconds since 1970."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    with open("/proc/stat", encoding="ascii") as file:
        boot = next(int(line.split()[1]) for line in file if line.startswith("btime "))
    return boot + ticks / _TICKS


def _disk_bytes(name: str) -> float:
    """Return the bytes read and written; 0 where the kernel does not count or show them."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith(f"{name}: ")), 0)
    except OSError:
        return 0


def _open_fds() -> float:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError as problem:
        if problem.errno != EMFILE:
            raise
        return _max_fds()


def _max_fds() -> float:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


Reading = Callable[[], float]


def _known(reading: Reading) -> float:
    try:
        return reading()
    except OSError:
        return math.nan


_READINGS: Mapping[str, Reading] = MappingProxyType(
    {
        "cpu_seconds": _cpu_seconds,
        "virtual_memory_bytes": lambda: _statm(0),
        "resident_memory_bytes": lambda: _statm(1),
        "start_time_seconds": _start_seconds,
        "open_fds": _open_fds,
        "max_fds": _max_fds,
        "disk_read_bytes": lambda: _disk_bytes("read_bytes"),
        "disk_write_bytes": lambda: _disk_bytes("write_bytes"),
    }
)
USAGE: Mapping[str, Reading] = MappingProxyType({name: partial(_known, reading) for name, reading in _READINGS.items()})
"""Name → function that reads the present value from the kernel."""


def package_version() -> str:
    """Return the installed version of this package."""
    from importlib.metadata import PackageNotFoundError, version  # nodes avoid this import at start

    try:
        return version("pykraft")
    except PackageNotFoundError:
        return "unknown"
