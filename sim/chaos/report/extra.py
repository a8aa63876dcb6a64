"""The libraries of the extra [chaos], imported when a report is made."""

from __future__ import annotations

import importlib
from types import ModuleType


class MissingExtra(ImportError):
    """A library that reports need is not installed; the text says how to install it."""


def import_extra(name: str) -> ModuleType:
    """Import the module of this name. Raises MissingExtra."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        library = name.partition(".")[0]
        raise MissingExtra(
            f"a report of a chaos run needs {library}, which is not installed: pip install 'pykraft[chaos]'"
        ) from problem
