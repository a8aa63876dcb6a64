"""Stand-ins are there while a node imports its libraries, and nowhere else."""

from __future__ import annotations

import subprocess
import sys

IMPORTS = """
import sys
from kraft.deploy.launch.imports import NodeModules
NodeModules().import_for_every_node()
"""


def run(program: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", IMPORTS + program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_node_does_not_load_what_it_never_calls() -> None:
    assert run("print([name for name in ('asyncio', 'email', 'ctypes.util') if name in sys.modules])") == "[]"


def test_the_true_modules_are_imported_by_whoever_needs_them_later() -> None:
    program = """
import asyncio, importlib.metadata, ctypes.util
async def one(): return 1
print(asyncio.run(one()), importlib.metadata.version("trio") != "unknown", ctypes.util.find_library("c"))
"""
    assert run(program).startswith("1 True libc.so")


def test_the_libraries_work_that_were_given_stand_ins() -> None:
    program = """
import crc32c, structlog, trio
async def in_thread(): return await trio.to_thread.run_sync(lambda: 5)
print(crc32c.crc32c(b"123456789") == 0xE3069283, trio.run(in_thread), structlog.get_logger().bind(a=1)._context)
"""
    assert run(program) == "True 5 {'a': 1}"


def test_a_module_that_is_imported_already_is_left_alone() -> None:
    program = "import asyncio\nbefore = asyncio\n" + IMPORTS + "import asyncio\nprint(asyncio is before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
