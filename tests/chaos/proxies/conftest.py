"""Fixtures: a toxiproxy server for each test module. The executable is built once for all modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kraft.sim.chaos.proxies.links import Link
from kraft.sim.chaos.proxies.server import ToxiproxyServer, toxiproxy_binary
from tests.chaos.proxies.rig import LINKS, Rig


@pytest.fixture(scope="session")
def binary() -> Path:
    return toxiproxy_binary()


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToxiproxyServer]:
    with ToxiproxyServer(tmp_path_factory.mktemp("toxiproxy"), binary=binary) as running:
        yield running


@pytest.fixture
def make_rig() -> Iterator[Callable[..., Rig]]:
    with ExitStack() as rigs:

        def make(server: ToxiproxyServer, *links: Link) -> Rig:
            made = Rig(server, links or LINKS)
            rigs.callback(made.close)
            return made

        yield make


@pytest.fixture
def rig(server: ToxiproxyServer, make_rig: Callable[..., Rig]) -> Rig:
    return make_rig(server)
