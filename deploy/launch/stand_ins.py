"""Stand-ins for modules that libraries import and nodes never call: a start takes less CPU, and runs no other command.

structlog imports asyncio for loggers of asyncio programs; crc32c reads its own version by importlib.metadata, which
brings the email package; trio asks ctypes.util for libpthread, to name its threads, and that runs a command. Each
stands in only while the library is imported; whoever imports the true module later gets it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, ModuleType


def _nothing(_name: str) -> None:
    """No such library: trio leaves the names of its threads alone."""


def _no_version(_name: str) -> str:
    return "unknown"


_STAND_INS: Mapping[str, dict[str, Callable[[str], str | None]]] = MappingProxyType(
    {
        "asyncio": {},
        "importlib.metadata": {"version": _no_version},
        "ctypes.util": {"find_library": _nothing},
    }
)
"""Module → what of it is used at import."""


@contextmanager
def stand_ins() -> Iterator[None]:
    """Within, what is not imported yet and has a stand-in is not imported either."""
    placed = {name: _place(name, parts) for name, parts in _STAND_INS.items() if name not in sys.modules}
    try:
        yield
    finally:
        for name, module in placed.items():
            _take_away(name, module)


def _place(name: str, parts: dict[str, Callable[[str], str | None]]) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(parts)
    sys.modules[name] = module
    package, _, attribute = name.rpartition(".")
    if package:
        setattr(importlib.import_module(package), attribute, module)
    return module


def _take_away(name: str, module: ModuleType) -> None:
    if sys.modules.get(name) is module:
        del sys.modules[name]
    package, _, attribute = name.rpartition(".")
    if package and getattr(sys.modules[package], attribute, None) is module:
        delattr(sys.modules[package], attribute)
