"""NodeCommand: how a node is executed that needs an environment or a command of its own.

Most nodes are forked from the zygote and run at once. `DIR/NODE/exec.json` makes a node execute a new interpreter
instead, in the same process: with more variables in its environment, and behind the words of a prefix that ends by
executing what follows (`nsenter … --`, `nice`). Process id, session, log, status pipe and title stay the same.

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
    """exec.json cannot be read, or its command cannot be executed; the text names the file and says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCommand:
    """See the module. The environment comes on top of the launcher's."""

    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def read(folder: Path) -> NodeCommand | None:
        """The one of this node's folder; None if the node has none. BadNodeCommand."""
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
        """Let the node of this folder be executed so from its next start on."""
        path = folder / EXEC_FILE
        draft = path.with_name(EXEC_FILE + ".tmp")
        draft.write_text(json.dumps({"prefix": self.prefix, "environment": dict(self.environment)}) + "\n")
        draft.replace(path)

    def words(self, folder: Path, status: int, *, log_level: str = "info", cluster_id: str | None = None) -> list[str]:
        """The command. `status` is the descriptor of the status pipe, which it inherits."""
        module = "kraft.deploy.launch.node_process"
        command = [sys.executable, "-m", module, str(folder / "server.properties"), str(status), log_level]
        return [*self.prefix, *command, *(() if cluster_id is None else (cluster_id,))]

    def execute(self, folder: Path, status: int, *, log_level: str, cluster_id: str | None) -> NoReturn:
        """Become this command. Of what this process has open, it inherits the status pipe and 0 to 2 alone.
        BadNodeCommand if there is no such program."""
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
