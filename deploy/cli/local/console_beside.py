"""The console that `kraft up --console` runs beside its cluster: a process of its own, which ends with the command.

It ends when its standard input does, a pipe from this process: also where this one is killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kraft.deploy.cli.console import PORT
from kraft.deploy.cli.output import print_json, warn
from kraft.deploy.launch.ports import is_free

if TYPE_CHECKING:
    from kraft.deploy.launch.control import LocalCluster

END_SECONDS_MAX = 5.0


@contextmanager
def console_beside(cluster: LocalCluster, *, allow_changes: bool, as_json: bool) -> Iterator[None]:
    """A console of this cluster while the context lives, at its usual port or at a free one."""
    port = PORT if is_free(PORT) else 0
    command = [sys.executable, "-m", "kraft.deploy.cli", "console", "--end-with-stdin", "--json", "--port", str(port)]
    where = ["--bootstrap", cluster.bootstrap_servers, "--data", str(cluster.folder.path)]
    mode = ["--allow-changes"] if allow_changes else []
    process = subprocess.Popen([*command, *where, *mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        _tell(process.stdout.readline(), as_json)
        yield
    finally:
        process.stdin.close()
        try:
            process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _tell(line: str, as_json: bool) -> None:
    """Say where it is; a console that did not start has said why on standard error, and the cluster stays."""
    if not line:
        warn("the console did not start; the cluster runs without it")
    elif as_json:
        print_json({"console": json.loads(line)["url"]})
    else:
        print(f"console: {json.loads(line)['url']}", flush=True)
