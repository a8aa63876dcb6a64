"""Tables of the product are read-only: a test, or a caller, that changed one would change it for the whole process."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import kraft
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from tests.tables import remove_row, replace_row, reverse_rows

ROOT = Path(kraft.__file__).parent
MUTABLE = (dict, list, set, bytearray)


def module_names() -> Iterator[str]:
    for folder in (ROOT, *(child for child in ROOT.iterdir() if child.is_dir())):
        paths = folder.glob("*.py") if folder == ROOT else folder.rglob("*.py")
        for path in sorted(paths):
            parts = path.relative_to(ROOT.parent).with_suffix("").parts
            if parts[-1] != "__main__":
                yield ".".join(parts).removesuffix(".__init__")


def assigned_names(module: ModuleType) -> Iterator[str]:
    for statement in ast.parse(Path(str(module.__file__)).read_text()).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else ()
        if isinstance(statement, ast.AnnAssign):
            targets = (statement.target,)
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def mutable_tables() -> Iterator[str]:
    """Upper-case names are constants. A cache and a registry that fills while modules are imported have lower-case
    ones."""
    for name in module_names():
        try:
            module = import_module(name)
        except ImportError:
            continue
        for table in assigned_names(module):
            if table.isupper() and isinstance(getattr(module, table, None), MUTABLE):
                yield f"{name}.{table}"


def test_every_table_of_a_module_is_read_only() -> None:
    names = set(module_names())
    assert {"kraft.wire.api_keys", "kraft.broker.api.table", "kraft.sim.story.chart"} <= names
    assert list(mutable_tables()) == []


def test_a_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        del BROKER_APIS[ApiKey.FETCH]  # type: ignore[attr-defined]


def test_a_replaced_row_is_seen_by_every_module_until_the_end_of_the_test() -> None:
    from kraft.broker.api import api_versions
    from kraft.wire import api_keys

    with pytest.MonkeyPatch.context() as patch:
        replace_row(patch, BROKER_APIS, ApiKey.FETCH, "one")
        remove_row(patch, BROKER_APIS, ApiKey.PRODUCE)
        reverse_rows(patch, BROKER_APIS)
        assert api_versions.BROKER_APIS is api_keys.BROKER_APIS
        assert api_versions.BROKER_APIS[ApiKey.FETCH] == "one"
        assert list(api_versions.BROKER_APIS) == [key for key in reversed(BROKER_APIS) if key != ApiKey.PRODUCE]
    assert api_versions.BROKER_APIS is api_keys.BROKER_APIS is BROKER_APIS
    assert sys.modules["kraft.wire.server"].BROKER_APIS is BROKER_APIS
