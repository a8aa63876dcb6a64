"""Stand-ins for modules are active only while a node imports its libraries."""

from __future__ import annotations

import subprocess
import sys

IMPORTS = """
import sys
from kraft.deploy.launch.imports import NodeModules
NodeModules().import_for_every_node()
"""


def run(program: str) -> str:
    """Run code in a fresh interpreter, and return its output."""
    done = subprocess.run([sys.executable, "-c", IMPORTS + program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_node_does_not_import_modules_that_have_stand_ins() -> None:
    assert run("print([name for name in ('asyncio', 'email', 'ctypes.util') if name in sys.modules])") == "[]"


def test_a_later_import_gets_the_real_module_instead_of_the_stand_in() -> None:
    program = """
import asyncio, importlib.metadata, ctypes.util
async def one(): return 1
print(asyncio.run(one()), importlib.metadata.version("trio") != "unknown", ctypes.util.find_library("c"))
"""
    assert run(program).startswith("1 True libc.so")


def test_libraries_work_although_some_of_their_imports_are_replaced_by_empty_modules() -> None:
    program = """
import crc32c, structlog, trio
async def in_thread(): return await trio.to_thread.run_sync(lambda: 5)
print(crc32c.crc32c(b"123456789") == 0xE3069283, trio.run(in_thread), structlog.get_logger().bind(a=1)._context)
"""
    assert run(program) == "True 5 {'a': 1}"


def test_an_already_imported_module_is_not_replaced_by_a_stand_in() -> None:
    program = "import asyncio\nbefore = asyncio\n" + IMPORTS + "import asyncio\nprint(asyncio is before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
