"""Synchronous: check the Python packages that Spark's tables need, before they are imported.

Spark itself imports whatever version it finds, and warns or fails late. The version ranges equal those of the extra
`pykraft[spark]`; a test compares them.
"""

from __future__ import annotations

import re
from importlib import import_module, util
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import NamedTuple

from kraft.client.spark.java import SparkNotReady

_INSTALL = "Install what fits with `pip install 'pykraft[spark]'`"


class PackageMissing(SparkNotReady):
    """pyspark, pandas or pyarrow is not installed."""


class PackageUnfit(SparkNotReady):
    """pyspark, pandas or pyarrow is installed in a version that is too old or too new."""


class VersionRange(NamedTuple):
    """A range of supported versions, from `oldest` (inclusive) to `first_unfit` (exclusive; None: no upper limit)."""

    oldest: str
    first_unfit: str | None
    reason: str


NEEDED = MappingProxyType(
    {
        "pyspark": VersionRange(
            "4.2", "4.4", "older ones cannot limit what a stream reads; newer ones have not been tried"
        ),
        "pandas": VersionRange("2.2", "3", "pyspark does not support pandas 3"),
        "pyarrow": VersionRange("18", None, "pyspark needs it to take columns from Python"),
    }
)


def check_packages() -> None:
    """Raise PackageMissing or PackageUnfit for the first package with which Spark's tables do not work."""
    for name in NEEDED:
        check_package(name, _installed(name))


def check_package(name: str, found: str | None) -> None:
    """Pure: check the version of one package; `found` is its installed version, or None if it is not installed."""
    needed = NEEDED[name]
    if found is None:
        raise PackageMissing(f"the package {name} is not installed, and Spark's tables need it. {_INSTALL}")
    too_new = needed.first_unfit is not None and _numbers(found) >= _numbers(needed.first_unfit)
    if too_new or _numbers(found) < _numbers(needed.oldest):
        range_text = f"{needed.oldest} or newer" + (f", older than {needed.first_unfit}" if needed.first_unfit else "")
        raise PackageUnfit(f"{name} {found} is installed, but {range_text} is needed: {needed.reason}. {_INSTALL}")


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        pass
    if util.find_spec(name) is None:
        return None
    # with a downloaded Spark, pyspark is on PYTHONPATH without package metadata
    return str(import_module(name).__version__)


def _numbers(text: str) -> tuple[int, ...]:
    """Return a version as a tuple of numbers, without trailing zeros: (4, 2) for `4.2.0`, `4.2` and `4.2.0.dev1`."""
    leading = re.match(r"\d+(\.\d+)*", text)
    numbers = [int(number) for number in leading.group().split(".")] if leading else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
