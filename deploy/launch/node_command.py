"""NodeCommand: executes a node that needs its own environment or its own command.

Most nodes are forked from the zygote and run at once. The file `DIR/NODE/exec.json` makes a node execute a new
interpreter instead, in the same process. The file can add environment variables and a command prefix. The words of the
prefix must end by executing the rest of the command (`nsenter … --`, `nice`). Process id, session, log, status pipe and
title stay the same.

    {"prefix": ["nsenter", "--net=/run/netns/one", "--"], "environment": {"LD_PRELOAD": "…/libfaketime.so.1"}}
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

EXEC_FILE = "exec.json"


class BadNodeCommand(Exception):
    """exec.json cannot be read, or its command cannot be executed. The text names the file and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCommand:
    """Command prefix and environment variables of a node. The variables are added to those of the launcher."""

    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def read(folder: Path) -> NodeCommand | None:
        """Return the command stored in this node's folder; None if the node has none. Raise BadNodeCommand if it is
        invalid."""
        path = folder / EXEC_FILE
        try:
            row = json.loads(path.read_text())
            return NodeCommand(
                prefix=tuple(map(str, row.get("prefix", ()))),
                environment={str(name): str(value) for name, value in row.get("environment", {}).items()},
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, AttributeError, TypeError) as problem:
            raise BadNodeCommand(f"{path} is no command of a node: {problem}") from None

    def write(self, folder: Path) -> None:
        """Store this command in the folder of a node. It is used from the node's next start on."""
        path = folder / EXEC_FILE
        draft = path.with_name(EXEC_FILE + ".tmp")
        draft.write_text(json.dumps({"prefix": self.prefix, "environment": dict(self.environment)}) + "\n")
        draft.replace(path)

    def words(self, folder: Path, status: int, *, log_level: str = "info", cluster_id: str | None = None) -> list[str]:
        """Return the words of the command line. `status` is the descriptor of the status pipe, which the command
        inherits."""
        module = "kraft.deploy.launch.node_process"
        command = [sys.executable, "-m", module, str(folder / "server.properties"), str(status), log_level]
        return [*self.prefix, *command, *(() if cluster_id is None else (cluster_id,))]

    def execute(self, folder: Path, status: int, *, log_level: str, cluster_id: str | None) -> NoReturn:
        """Replace this process by the command. The command inherits only the status pipe and descriptors 0 to 2. Raise
        BadNodeCommand if its program does not exist."""
        words = self.words(folder, status, log_level=log_level, cluster_id=cluster_id)
        os.set_inheritable(status, True)
        os.closerange(3, status)
        os.closerange(status + 1, os.sysconf("SC_OPEN_MAX"))
        try:
            os.execvpe(words[0], words, {**os.environ, **self.environment})
        except OSError as problem:
            raise BadNodeCommand(
                f"{folder / EXEC_FILE}: cannot execute {words[0]}: {problem.strerror}; its prefix must name a program"
            ) from None
