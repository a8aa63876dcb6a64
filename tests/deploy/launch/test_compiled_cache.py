"""The cache of compiled dataclass methods. It is kept between runs, and causes no error if its file is damaged or not
writable.
"""

from __future__ import annotations

import builtins
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraft.deploy.launch.compiled_cache import CompiledCache, cache_path


def make_class() -> type:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 2

    return Point


def require_working(point: type) -> None:
    assert point(1) == point(1, 2)
    assert repr(point(1)).endswith("Point(x=1, y=2)")
    assert hash(point(1)) == hash(point(1, 2))


def test_compiled_cache_of_a_user_without_a_home_is_in_memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    cache = CompiledCache(cache_path())
    with cache.active():
        require_working(make_class())
    assert cache_path() is None


def test_compiled_cache_finds_methods_compiled_in_an_earlier_run(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "code"
    with CompiledCache(path).active():
        require_working(make_class())
    written = path.read_bytes()
    again = CompiledCache(path)
    assert again._known
    with again.active():
        require_working(make_class())
    assert path.read_bytes() == written


def test_compiled_cache_changes_nothing_outside_its_context(tmp_path: Path) -> None:
    with CompiledCache(tmp_path / "code").active():
        assert dataclasses.__dict__["exec"] is not builtins.exec
    assert "exec" not in dataclasses.__dict__
    require_working(make_class())


def test_compiled_cache_ignores_and_replaces_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "code"
    with CompiledCache(path).active():
        make_class()
    good = path.read_bytes()
    path.write_bytes(good[:-1] + b"?")
    with CompiledCache(path).active():
        require_working(make_class())
    assert path.read_bytes() == good


def test_compiled_cache_works_with_an_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with CompiledCache(tmp_path / "file" / "code").active():
        require_working(make_class())


def test_compiled_cache_gets_no_new_entries_from_another_hash_seed(tmp_path: Path) -> None:
    path = tmp_path / "code"
    program = (
        "import sys; from pathlib import Path; from kraft.deploy.launch.compiled_cache import CompiledCache\n"
        "with CompiledCache(Path(sys.argv[1])).active():\n"
        "    import attr\n"
        "    hashed = attr.make_class('Hashed', ['x'], frozen=True)\n"
        "    plain = attr.make_class('Plain', ['x'], eq=False)\n"
        "    assert hash(hashed(1)) == hash(hashed(1)) and plain(1).x == 1"
    )

    def run(seed: int) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        subprocess.run([sys.executable, "-c", program, str(path)], env=environment, check=True)
        return path.read_bytes()

    assert run(1) == run(2)
