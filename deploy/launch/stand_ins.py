"""Stand-ins for modules that libraries import and nodes never use. They save CPU at the start, and no other command is
run.

structlog imports asyncio for loggers of asyncio programs. crc32c reads its own version with importlib.metadata, which
imports the email package. trio looks up libpthread with ctypes.util to name its threads, and that runs a command. A
stand-in is active only while its library is imported; a later import gets the real module.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, ModuleType


def _nothing(_name: str) -> None:
    """Return None for every library, so that trio does not name its threads."""


def _no_version(_name: str) -> str:
    return "unknown"


_STAND_INS: Mapping[str, dict[str, Callable[[str], str | None]]] = MappingProxyType(
    {
        "asyncio": {},
        "importlib.metadata": {"version": _no_version},
        "ctypes.util": {"find_library": _nothing},
    }
)
"""Replaced modules, each with the functions that a library calls while it is imported."""


@contextmanager
def stand_ins() -> Iterator[None]:
    """Replace modules by their stand-ins while this context is open, unless they are imported already."""
    placed = {name: _install(name, parts) for name, parts in _STAND_INS.items() if name not in sys.modules}
    try:
        yield
    finally:
        for name, module in placed.items():
            _remove(name, module)


def _install(name: str, parts: dict[str, Callable[[str], str | None]]) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(parts)
    sys.modules[name] = module
    package, _, attribute = name.rpartition(".")
    if package:
        setattr(importlib.import_module(package), attribute, module)
    return module


def _remove(name: str, module: ModuleType) -> None:
    if sys.modules.get(name) is module:
        del sys.modules[name]
    package, _, attribute = name.rpartition(".")
    if package and getattr(sys.modules[package], attribute, None) is module:
        delattr(sys.modules[package], attribute)
