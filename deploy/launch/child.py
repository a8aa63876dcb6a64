"""Code that a forked node runs between the fork and `serve`: new session, log file, new random seeds, own process
title.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from pathlib import Path
from typing import NoReturn

from kraft.config import ConfigError
from kraft.deploy.launch.node_command import BadNodeCommand, NodeCommand
from kraft.deploy.launch.node_process import EXIT_BROKEN, EXIT_FAILED, StatusPipe, read_config, run_node
from kraft.deploy.launch.streams import make_outputs_lossy


def run_child(folder: Path, gate: int, status: int, *, log_level: str, cluster_id: str | None) -> NoReturn:
    """Run the node of this folder in this process, which was just forked, and end the process afterwards.

    The zygote closes its end of `gate` once the process is recorded in its folder; the child does nothing before. With
    a `cluster_id`, empty log directories are formatted for that cluster. If the node has its own command (`exec.json`),
    this process executes that command."""
    code = EXIT_BROKEN
    try:
        os.setsid()
        os.read(gate, 1)
        os.close(gate)
        _open_log(folder / "node.log")
        os.chdir(folder)
        random.seed()
        gc.enable()
        code = _run(folder, status, log_level, cluster_id)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run(folder: Path, descriptor: int, log_level: str, cluster_id: str | None) -> int:
    status = StatusPipe(descriptor)
    path = folder / "server.properties"
    try:
        command = NodeCommand.read(folder)
        if command is not None:
            command.execute(folder, descriptor, log_level=log_level, cluster_id=cluster_id)
    except BadNodeCommand as problem:
        print(problem, file=sys.stderr)
        status.report(event="failed", error=str(problem))
        return EXIT_FAILED
    try:
        config = read_config(path)
    except ConfigError as problem:
        print(f"{path}: {problem}", file=sys.stderr)
        status.report(event="failed", error=str(problem))
        return EXIT_FAILED
    return run_node(config, status=status, log_level=log_level, cluster_id=cluster_id, title=str(folder.parent))


def _open_log(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    make_outputs_lossy()
