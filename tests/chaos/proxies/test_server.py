"""Tests of ToxiproxyServer: the child process answers after its start, and has ended after its stop."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraft.sim.chaos.proxies import server as server_module
from kraft.sim.chaos.proxies.api import ToxiproxyApi
from kraft.sim.chaos.proxies.server import LOG_NAME, ToxiproxyError, ToxiproxyServer

pytestmark = pytest.mark.timeout(600)  # the first test may have to build toxiproxy

DEAF = """#!/bin/sh
trap '' TERM
echo deaf
echo $$ > {pid_file}
while true; do sleep 1; done
"""


def is_running(pid: int) -> bool:
    """Return whether the process exists; a zombie counts as existing."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_toxiproxy_server_answers_in_its_own_process_group_until_it_is_stopped(binary: Path, tmp_path: Path) -> None:
    with ToxiproxyServer(tmp_path, binary=binary) as server:
        pid = server.pid
        assert pid is not None
        assert server.api.version()
        assert os.getpgid(pid) == pid
        server.require_running()
        with pytest.raises(ToxiproxyError, match="started already"):
            server.start()
    assert not is_running(pid)
    assert server.pid is None
    assert "Starting Toxiproxy" in (tmp_path / LOG_NAME).read_text()
    server.stop()


def test_a_toxiproxy_server_can_be_restarted(binary: Path, tmp_path: Path) -> None:
    server = ToxiproxyServer(tmp_path, binary=binary)
    for _ in range(2):
        with server:
            assert server.api.proxies() == {}


def test_a_toxiproxy_server_is_stopped_when_its_block_raises(binary: Path, tmp_path: Path) -> None:
    server = ToxiproxyServer(tmp_path, binary=binary)
    with pytest.raises(RuntimeError, match="in the block"), server:
        pid = server.pid
        raise RuntimeError("in the block")
    assert pid is not None
    assert not is_running(pid)


def test_a_toxiproxy_server_that_is_not_started_has_no_api(tmp_path: Path) -> None:
    with pytest.raises(ToxiproxyError, match="not started"):
        _ = ToxiproxyServer(tmp_path).api


def test_a_toxiproxy_binary_that_ends_at_once_raises_an_error_with_its_output(tmp_path: Path) -> None:
    broken = executable(tmp_path / "broken", "#!/bin/sh\necho no such flag\nexit 3\n")
    server = ToxiproxyServer(tmp_path, binary=broken)
    with pytest.raises(ToxiproxyError, match=r"ended with code 3; the end of .*: no such flag"):
        server.start()
    assert server.pid is None


def test_a_toxiproxy_binary_that_cannot_be_executed_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToxiproxyError, match=r"nowhere cannot be started: .*No such file"):
        ToxiproxyServer(tmp_path, binary=tmp_path / "nowhere").start()


def test_a_toxiproxy_server_that_ignores_requests_and_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "START_SECONDS_MAX", 0.1)
    monkeypatch.setattr(server_module, "STOP_SECONDS_MAX", 0.1)
    pid_file = tmp_path / "pid"
    deaf = executable(tmp_path / "deaf", DEAF.format(pid_file=pid_file))
    server = ToxiproxyServer(tmp_path, binary=deaf)
    call = ToxiproxyApi.version

    def ask_once_it_runs(api: ToxiproxyApi) -> str:
        while not (pid_file.exists() and pid_file.read_text()):
            server.require_running()
        return call(api)

    monkeypatch.setattr(ToxiproxyApi, "version", ask_once_it_runs)
    with pytest.raises(ToxiproxyError, match=r"does not answer within 0\.1 s; the end of .*: deaf"):
        server.start()
    assert not is_running(int(pid_file.read_text()))
