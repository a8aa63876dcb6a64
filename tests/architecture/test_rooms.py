"""The source stays divided: the number of files in a folder and in an import cycle are limited."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.rooms import (
    CYCLE_MAX,
    FILES_MAX,
    ROOT,
    crowded_folders,
    files_of_tests,
    import_cycles,
    import_graph,
    imported_names,
    main,
    module_name,
    source_files,
)


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_no_folder_exceeds_the_maximum_number_of_files() -> None:
    assert crowded_folders([*source_files(), *files_of_tests()]) == []


def test_no_import_cycle_exceeds_the_maximum_number_of_files() -> None:
    largest = max(import_cycles(import_graph()), key=len)
    assert len(largest) <= CYCLE_MAX, largest


def test_checks_catch_a_folder_with_too_many_files() -> None:
    files = [Path(f"broker/node/part{number}.py") for number in range(FILES_MAX + 1)]
    assert crowded_folders([*files, Path("broker/api/one.py")]) == [(FILES_MAX + 1, Path("broker/node"))]
    assert crowded_folders(files[1:]) == []


def test_source_files_are_counted_once_despite_symbolic_links() -> None:
    files = list(source_files())
    assert len(files) == len(set(files))
    assert len({(ROOT / path).resolve() for path in files}) == len(files)


def test_module_name_of_a_file_is_the_name_by_which_it_is_imported() -> None:
    assert module_name(Path("broker/api/table.py")) == "kraft.broker.api.table"
    assert module_name(Path("kraft/wire/__init__.py")) == "kraft.wire"


@pytest.mark.parametrize(
    "source",
    [
        "import kraft.sim.b",
        "from kraft.sim.b import something",
        "from kraft.sim import b",
        "from . import b",
        "from .b import something",
        "def f():\n    from kraft.sim import b",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kraft.sim.b import Something",
    ],
)
def test_checks_catch_an_import_cycle_however_its_modules_are_imported(source: str, tmp_path: Path) -> None:
    write_tree(tmp_path, {"sim/a.py": source, "sim/b.py": "import kraft.sim.a", "sim/c.py": "import kraft.sim.a"})
    assert import_cycles(import_graph(tmp_path)) == [["kraft.sim.a", "kraft.sim.b"]]


def test_import_cycles_are_sorted_by_size() -> None:
    graph = {
        "a": frozenset({"b"}),
        "b": frozenset({"a", "c"}),
        "c": frozenset({"d"}),
        "d": frozenset({"e"}),
        "e": frozenset({"c", "f"}),
        "f": frozenset[str](),
    }
    assert import_cycles(graph) == [["c", "d", "e"], ["a", "b"]]


def test_relative_import_is_resolved_to_the_full_name_of_its_module() -> None:
    assert list(imported_names("from .b import c", "kraft.sim.a", is_package=False)) == ["kraft.sim.b.c"]
    assert list(imported_names("from .b import c", "kraft.sim", is_package=True)) == ["kraft.sim.b.c"]


def test_the_rooms_command_prints_crowded_folders_and_import_cycles(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    printed = capsys.readouterr().out
    assert f"folders with more than {FILES_MAX} source files: 0\n" in printed
    assert f"largest: {len(max(import_cycles(import_graph()), key=len))} files" in printed
