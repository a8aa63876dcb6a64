"""Synchronous: the Python packages that Spark's tables need, checked before they are imported.

Spark itself imports any version that it finds and warns or fails late. The ranges are those of the extra
`pykraft[spark]`, which a test compares.
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
    """One of them is installed in a version that is too old or too new."""


class Needed(NamedTuple):
    """A range of versions: `oldest` fits; `first_unfit` does not, nor does anything newer. None: no upper end."""

    oldest: str
    first_unfit: str | None
    reason: str


NEEDED = MappingProxyType(
    {
        "pyspark": Needed("4.2", "4.4", "older ones cannot limit what a stream reads; newer ones have not been tried"),
        "pandas": Needed("2.2", "3", "pyspark does not support pandas 3"),
        "pyarrow": Needed("18", None, "pyspark needs it to take columns from Python"),
    }
)


def check_packages() -> None:
    """PackageMissing or PackageUnfit for the first package with which Spark's tables do not work."""
    for name in NEEDED:
        check_package(name, _installed(name))


def check_package(name: str, found: str | None) -> None:
    """Pure: the same for one package, of which version `found` is installed, or none."""
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
    return str(import_module(name).__version__)  # a download of Spark has pyspark on PYTHONPATH, not as a package


def _numbers(text: str) -> tuple[int, ...]:
    """(4, 2, 0) of `4.2.0` and of `4.2.0.dev1`; zeros at the end are left out, so that 4.2 equals 4.2.0."""
    leading = re.match(r"\d+(\.\d+)*", text)
    numbers = [int(number) for number in leading.group().split(".")] if leading else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
