"""A cluster that was started by the kraft command, shared by the tests of a module; and the command without a
cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.layout import ClusterLayout
from tests.stages.kraft_command import Command, free_port


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn skipped tests into failures if a script of deploy/check runs them, because it provides all that its tests
    need."""
    report = yield
    if report.skipped and os.environ.get("KRAFT_DEPLOY_CHECK"):
        report.outcome = "failed"
        report.longrepr = f"skipped in a check: {report.longrepr}"
    return report


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def up(home: Path) -> Iterator[Command]:
    """A cluster of one controller and two brokers, which was started last."""
    shape = ClusterLayout(controllers=1, brokers=2)
    kraft = Command(home / "state")
    arguments = ("--controllers", "1", "--brokers", "2", "--data", home / "data", "--port", str(free_port(shape)))
    answer = kraft.spawn("up", *arguments, "--background", "--set", "num.partitions=2", "--json")
    assert json.loads(answer)["ready"] is True
    yield kraft
    kraft.run("down")


@pytest.fixture
def kraft(tmp_path: Path) -> Command:
    """The command with a home folder in which no cluster was ever started."""
    return Command(tmp_path / "state")
