"""The code that twins were written against (originals), and how a twin replaces its original.

`digests.json` has a digest of every original, under its planter (a mutation's id, or a test) and the original's full
name. A twin is planted only if the digest of its original is the recorded one. In recording mode every twin is planted,
and the present digests are recorded; `python -m tests.bugbank --digests` does that (`refreshing`).
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.stages.tables import replace_row

DIGESTS = Path(__file__).parent / "digests.json"

_noted: dict[str, str] | None = None
"""Present digests recorded so far; None outside of recording mode, in which originals are compared with those in the
file."""


class OriginalChanged(Exception):
    """The original of a twin has changed since the twin was written."""


class Planting:
    """Puts twins into the code. `planter` is the id of the mutation, or the name of the test."""

    def __init__(self, patch: pytest.MonkeyPatch, planter: str) -> None:
        self._patch = patch
        self._planter = planter

    def replace(self, owner: Any, name: str, twin: Any, *also: Any) -> None:
        """Replace `owner.name` by `twin`, and the same name in every other module that imported it."""
        original = inspect.getattr_static(owner, name)
        _require_known(f"{self._planter} {_full_name(owner)}.{name}", original)
        for place in (owner, *also):
            self._patch.setattr(place, name, twin)

    def put(self, table: Mapping[Any, Any], key: Any, twin: Any) -> None:
        """Replace a function in a table by `twin`, as `replace` does."""
        _require_known(f"{self._planter} [{getattr(key, '__name__', key)}]", table[key])
        replace_row(self._patch, table, key, twin)


def plant(patch: pytest.MonkeyPatch, owner: Any, name: str, twin: Any, *also: Any) -> None:
    """Replace a function by its twin for the test that is running; see `Planting.replace`."""
    Planting(patch, _running_test()).replace(owner, name, twin, *also)


@contextmanager
def noting() -> Iterator[dict[str, str]]:
    """Accept originals as they are, and record the digest of each that is replaced."""
    global _noted
    before, _noted = _noted, {}
    try:
        yield _noted
    finally:
        _noted = before


def read_digests() -> dict[str, str]:
    return dict(json.loads(DIGESTS.read_text()))


def write_digests(digests: dict[str, str]) -> None:
    DIGESTS.write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n")


def planter_of(key: str) -> str:
    return key.partition(" ")[0]


def is_test(planter: str) -> bool:
    return "::" in planter


def digest_now(key: str) -> str:
    """Return the present digest of the original that a test's key names; "" if it no longer exists."""
    parts = key.partition(" ")[2].split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        try:
            for part in parts[count:]:
                found = inspect.getattr_static(found, part)
        except AttributeError:
            return ""
        return _digest(found)
    return ""


def _require_known(key: str, original: Any) -> None:
    found = _digest(original)
    if _noted is not None:
        _noted[key] = found
        return
    known = read_digests().get(key)
    if found != known:
        is_new_test = known is None and is_test(planter_of(key))
        raise OriginalChanged(
            f"{key} has changed (digest {found}, not {known}): look whether the twin still means the same bug, "
            f"then run python -m tests.bugbank --digests {planter_of(key) if is_new_test else ''}"
        )


def _digest(original: Any) -> str:
    function: Any = original.fget if isinstance(original, property) else getattr(original, "__func__", original)
    is_code = inspect.isfunction(function) or inspect.isclass(function)
    source = _code(inspect.getsource(function)) if is_code else repr(function)
    return hashlib.sha256(source.encode()).hexdigest()[:8]


def _code(source: str) -> str:
    """Return the code of a source without docstrings, comments and layout, which do not change a bug."""
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        for statements in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(statements, list):
                statements[:] = [one for one in statements if not _is_text(one)]
    return ast.dump(tree)


def _is_text(statement: ast.AST) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _full_name(owner: Any) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if inspect.isclass(owner) else str(owner.__name__)


def _running_test() -> str:
    """Return the running test's file and name, without parameters."""
    return os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0].partition("[")[0]
