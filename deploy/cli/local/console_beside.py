"""The console that `kraft up --console` runs for its cluster, in a process that ends with the command.

The standard input of the console is a pipe from the command's process. The console ends when the pipe is at its end,
which also happens if the command's process is killed.
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
    """Run a console for this cluster while the context is open, at its usual port or, if that is in use, at a free
    port."""
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
    """Print the console's address. If the console did not start, it has reported the reason on standard error, and the
    cluster keeps running."""
    if not line:
        warn("the console did not start; the cluster runs without it")
    elif as_json:
        print_json({"console": json.loads(line)["url"]})
    else:
        print(f"console: {json.loads(line)['url']}", flush=True)
