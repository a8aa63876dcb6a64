"""No code uses real time, real randomness, or real input and output, except in the places listed here with the reason.

The tripwires of a simulated world catch calls at run time. This test also catches what was imported by name, and code
that no run reaches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("kraft", "broker", "client", "sim", "deploy")
LINKS = tuple(ROOT / "kraft" / name for name in FOLDERS)
"""Symbolic links in kraft/ to the product's top folders."""

BANNED = {
    "time": (),
    "random": (),
    "secrets": (),
    "socket": (),
    "threading": (),
    "subprocess": (),
    "tempfile": (),
    "datetime": ("datetime.now", "datetime.utcnow", "datetime.today", "date.today"),
    "uuid": ("uuid1", "uuid4", "getnode"),
    "os": ("urandom", "getrandom", "open", "listdir", "scandir", "walk", "fork", "times"),
    "io": ("open", "open_code", "FileIO"),
    "builtins": ("open",),
}
"""Module → its banned names; an empty tuple bans all of them."""

REAL_TIME = ("time.monotonic", "time.monotonic_ns", "time.time_ns")
ALLOWED: dict[str, tuple[str, ...]] = {
    # the real seam, which no simulated world uses
    "kraft/runtime/": (*REAL_TIME, "socket", "builtins.open", "os.open", "os.listdir"),
    "kraft/runtime/disk_faults.py": ("threading.Condition",),
    "kraft/runtime/clock.py": ("random.Random", "os.urandom"),
    "kraft/runtime/tls.py": ("tempfile",),
    "kraft/runtime/writeback.py": ("threading",),
    # fresh seeds for tests of applications
    "kraft/testing/": ("random.SystemRandom",),
    # inside Spark's workers and drivers, which never run in a simulated world
    "client/spark/": ("time", "datetime.datetime.now"),
    "client/spark/blocking/link.py": ("socket",),
    "client/spark/java.py": ("subprocess",),
    "client/spark/sink/": ("random", "uuid.uuid4"),
    "client/spark/topics/group_committer.py": ("threading.Condition",),
    "deploy/cli/local/console_beside.py": ("subprocess",),
    "deploy/cli/spark/progress_bar.py": ("threading",),
    # programs: the command line, and code that starts processes
    "deploy/cli/": ("time", "random", "subprocess.Popen", "tempfile", "builtins.open", "os.open"),
    "deploy/launch/": ("time", "random", "socket", "subprocess", "builtins.open", "os.open", "os.fork"),
    "deploy/console/": ("time.time",),
    "deploy/console/guard.py": ("secrets.token_urlsafe",),
    "deploy/console/serving.py": ("socket",),
    # code that makes randomness follow the seed
    "sim/world/chance.py": ("random.Random",),
    "sim/cores/heap.py": ("random.Random",),
    "sim/simulated_stdlib.py": ("random", "tempfile.NamedTemporaryFile"),
    "sim/world/tripwires.py": ("random", "socket", "threading.Thread"),
    # code around the simulated worlds: fresh seeds, fresh processes, and the cost of runs
    "sim/commands.py": ("os.urandom",),
    "sim/run/determinism.py": ("subprocess",),
    "sim/run/seed_campaign.py": ("time.process_time",),
    "sim/run/kept_runs.py": ("os.walk",),
    "sim/cores/runs.py": ("time.process_time",),
    # campaigns against real clusters: processes, links, hosts, and the threads that observe them
    "sim/chaos/apache/": ("time", "socket", "subprocess", "secrets", "tempfile.gettempdir"),
    "sim/chaos/application/": ("subprocess",),
    "sim/chaos/clients/": ("time.monotonic", "threading"),
    "sim/chaos/clusters/": ("time", "random.SystemRandom", "socket", "subprocess", "threading", "secrets", "tempfile"),
    "sim/chaos/history.py": ("threading.Lock",),
    "sim/chaos/hosts/": (
        *("time", "random.SystemRandom", "subprocess", "threading.Lock", "secrets", "tempfile.mkdtemp"),
        *("builtins.open", "os.open", "os.listdir"),
    ),
    "sim/chaos/proxies/": ("time", "subprocess", "threading.RLock", "tempfile.TemporaryDirectory"),
    "sim/chaos/run/": ("datetime.datetime.now", "time.monotonic_ns", "random.Random"),
    # actions of a scenario's clients, determined by its seed; also in virtual time
    "sim/chaos/workloads/": ("random.Random", "secrets.token_hex"),
}
"""File or folder → what it may use, by module or by full name."""


def named_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Return (line, full name) of each use of a banned name."""
    modules: dict[str, str] = {"open": "builtins.open"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module in BANNED and not node.level:
            modules |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            head, _, rest = _dotted(node).partition(".")
            if head in modules:
                yield node.lineno, ".".join(part for part in (modules[head], rest) if part)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def is_banned(name: str) -> bool:
    module, _, rest = name.partition(".")
    if module not in BANNED or not rest:
        return False
    return not BANNED[module] or any(rest == each or rest.startswith(f"{each}.") for each in BANNED[module])


def banned_in(source: str) -> list[tuple[int, str]]:
    return sorted({(line, name) for line, name in named_in(ast.parse(source)) if is_banned(name)})


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(path.is_relative_to(link) for link in LINKS):
                yield path


def allowance_of(path: Path, name: str) -> tuple[str, str] | None:
    """Return the entry of ALLOWED that permits this file to use this name, if any."""
    place = path.relative_to(ROOT).as_posix()
    for prefix, names in ALLOWED.items():
        for each in names:
            if place.startswith(prefix) and (name == each or name.startswith(f"{each}.")):
                return prefix, each
    return None


def test_real_time_chance_and_io_are_used_only_in_listed_places() -> None:
    found, used = [], set()
    for path in sources():
        for line, name in banned_in(path.read_text()):
            allowance = allowance_of(path, name)
            if allowance is None:
                found.append(f"{path.relative_to(ROOT)}:{line} names {name}")
            used.add(allowance)
    assert found == []
    every = {(place, name) for place, names in ALLOWED.items() for name in names}
    assert every - used == set(), "nobody needs this any more"


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "import time as t\nnow = t.monotonic_ns",
        "from time import monotonic",
        "def f():\n    from random import choice",
        "import random\nrandom.Random()",
        "import secrets\nsecrets.token_hex()",
        "import datetime\ndatetime.datetime.now(datetime.UTC)",
        "from datetime import datetime\ndatetime.utcnow()",
        "from datetime import date as day\nday.today()",
        "import uuid\nuuid.uuid4()",
        "from uuid import uuid4",
        "import os\nos.getrandom(4)",
        "from os import urandom as noise",
        "open('x')",
        "with open('x', 'rb') as source:\n    pass",
        "import io\nio.open('x')",
        "import socket\nsocket.socket()",
    ],
)
def test_checks_catch_banned_calls_however_they_are_imported(source: str) -> None:
    assert banned_in(source), source


@pytest.mark.parametrize(
    "source",
    [
        "from uuid import UUID\nUUID(int=1)",
        "from datetime import timedelta\ntimedelta(seconds=1)",
        "import os\nos.path.join('a', 'b')",
        "disk.open('x')",
        "random.below(3)",
        "self.time.time()",
        "def open(): ...",
    ],
)
def test_checks_of_banned_calls_accept_harmless_code(source: str) -> None:
    assert not banned_in(source), source
