"""Tables of the product are read-only: a test or caller that changed one would change it for the whole process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import kraft
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from tests.stages.tables import replace_row, shown_as

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
    file = Path(str(module.__file__))
    source = file.with_name(file.name.partition(".")[0] + ".py")  # also of a compiled module
    for statement in ast.parse(source.read_text()).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else ()
        if isinstance(statement, ast.AnnAssign):
            targets = (statement.target,)
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def mutable_tables() -> Iterator[str]:
    """Return mutable tables with upper-case names, which are constants. Caches and registries that fill during imports
    have lower-case names."""
    for name in module_names():
        try:
            module = import_module(name)
        except ImportError:
            continue
        for table in assigned_names(module):
            if table.isupper() and isinstance(getattr(module, table, None), MUTABLE):
                yield f"{name}.{table}"


def test_every_constant_table_of_a_module_is_read_only() -> None:
    names = set(module_names())
    assert {"kraft.wire.api_keys", "kraft.broker.api.table", "kraft.sim.story.chart"} <= names
    assert list(mutable_tables()) == []


def test_a_constant_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        del BROKER_APIS[ApiKey.FETCH]  # type: ignore[attr-defined]


def test_a_table_changed_by_a_test_is_restored_afterwards() -> None:
    before = list(BROKER_APIS.items())
    with pytest.MonkeyPatch.context() as patch:
        replace_row(patch, BROKER_APIS, ApiKey.FETCH, "one")
        with shown_as(BROKER_APIS, dict(reversed(BROKER_APIS.items()))):
            assert list(BROKER_APIS) == [key for key, _ in reversed(before)]
            assert BROKER_APIS[ApiKey.FETCH] == "one"
        assert list(BROKER_APIS) == [key for key, _ in before]
    assert list(BROKER_APIS.items()) == before
