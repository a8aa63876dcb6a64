"""Compile the record walk (`kraft/wire/record_walk.py`) with mypyc where a C compiler is there; leave it interpreted
where not.

A build hook for wheels and editable installs. `python hatch_build.py` compiles it in a checkout. An editable install
has the compiled module beside its source, which Python prefers: after a change of the source, run `make setup`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
SOURCE = "kraft/wire/record_walk.py"
MODULES = "record_walk*.so"
"""mypyc makes two: the module, and one that holds the code."""


class CompileRecordWalk(BuildHookInterface[Any]):
    """Put the compiled module into the wheel, which is then one for this platform; beside the source if editable."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        compiled = compile_in_place()
        if compiled and version != "editable":
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"].update({str(path): str(path.relative_to(ROOT)) for path in compiled})


def compile_in_place() -> list[Path]:
    """The compiled modules beside the source; none if it cannot be compiled here, and then none is left there."""
    folder = (ROOT / SOURCE).parent
    for stale in folder.glob(MODULES):
        stale.unlink()
    try:
        with tempfile.TemporaryDirectory() as work:
            return [Path(shutil.copy(built, folder)) for built in _compile(work)]
    except (Exception, SystemExit) as problem:  # noqa: BLE001 (no compiler, no headers, no mypyc: each means interpreted)
        print(f"the record walk stays interpreted: {problem}", file=sys.stderr)
        return []


def _compile(work: str) -> list[Path]:
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    before = os.getcwd()
    os.chdir(ROOT)
    try:
        extensions = mypycify(["--config-file=", f"--cache-dir={work}/mypy", SOURCE], target_dir=f"{work}/c")
        command = build_ext(Distribution({"name": "kraft", "ext_modules": extensions}))
        command.build_lib, command.build_temp = f"{work}/lib", f"{work}/o"
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(before)
    return sorted(Path(work, "lib").rglob(MODULES))


if __name__ == "__main__":
    compile_in_place()
