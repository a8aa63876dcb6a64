"""NodeCommands: how the nodes of a user's cluster are killed, stopped, started, paused and resumed: by the user's own
shell commands, from a TOML file.

    timeout_s = 30                               # of each command; default 30

    [node.1]                                     # by node id, as the cluster has it
    kill = "docker kill kafka-1"
    stop = "docker stop kafka-1"
    start = "docker start kafka-1"
    pause = "docker pause kafka-1"
    resume = "docker unpause kafka-1"

Commands run with `sh -c` in the file's folder. A command that starts a node returns while the node continues to run.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kraft.sim.shapes import ClusterError

VERBS = KILL, STOP, START, PAUSE, RESUME = ("kill", "stop", "start", "pause", "resume")
ENDED_BY: Mapping[str, str] = MappingProxyType({KILL: START, STOP: START, PAUSE: RESUME})
"""Command → the command that undoes it. A control file that has the command must also have the command that undoes it.
"""
TIMEOUT_S = 30.0
OUTPUT_SHOWN = 500


@dataclass(frozen=True, slots=True)
class NodeCommands:
    """Commands of a control file. `commands`: node → name → shell command. `source` is the file, for errors."""

    source: Path
    commands: Mapping[int, Mapping[str, str]]
    timeout_s: float = TIMEOUT_S

    @classmethod
    def read(cls, path: Path) -> NodeCommands:
        """Read a control file. Raises ClusterError with what is wrong in the file, and what is expected."""
        try:
            found = tomllib.loads(path.read_text())
        except OSError as problem:
            raise ClusterError(f"--control {path}: {problem.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
            raise ClusterError(f"--control {path} is not TOML: {problem}") from None
        timeout_s = found.pop("timeout_s", TIMEOUT_S)
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or timeout_s <= 0:
            raise ClusterError(f"--control {path}: timeout_s is a number of seconds above 0, and not {timeout_s!r}")
        nodes = found.pop("node", {})
        if found:
            raise ClusterError(f"--control {path}: unknown {', '.join(found)}; expected timeout_s and [node.ID] tables")
        if not isinstance(nodes, dict) or not nodes:
            raise ClusterError(f"--control {path} names no node: expected tables [node.ID], as [node.1]")
        return cls(path, {_node_id(path, name): _verbs(path, name, verbs) for name, verbs in nodes.items()}, timeout_s)

    def has(self, nodes: Iterable[int], verb: str) -> bool:
        """Return whether each of these nodes has this command."""
        return all(verb in self.commands.get(node, {}) for node in nodes)

    def words(self, node: int, verb: str) -> list[str]:
        """Return the command line for a node's command. Raises ClusterError if the control file has none."""
        command = self.commands.get(node, {}).get(verb)
        if command is None:
            raise ClusterError(f"{self.source} has no command for this: expected {verb} in [node.{node}]")
        folder = shlex.quote(str(self.source.absolute().parent))
        return ["sh", "-c", f'cd {folder} && eval "$1"', "sh", command]

    def run(self, node: int, verb: str) -> None:
        """Run a command to its end. ClusterError if it fails or times out."""
        words = self.words(node, verb)
        where = f"{verb} of [node.{node}] in {self.source}"
        with tempfile.TemporaryFile() as output:  # no pipe: a process that the command starts may keep it open
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
            try:
                code = process.wait(self.timeout_s)
            except BaseException as problem:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(problem, subprocess.TimeoutExpired):
                    raise ClusterError(f"{where} has not ended within {self.timeout_s:g} s, and was killed") from None
                raise
            output.seek(0)
            said = output.read().decode(errors="replace").strip()[-OUTPUT_SHOWN:]
        if code:
            raise ClusterError(f"{where} ended with exit code {code}" + (f": {said}" if said else ""))


def _node_id(path: Path, name: str) -> int:
    if not name.isdecimal():
        raise ClusterError(f"--control {path}: [node.{name}] names no node: expected a node id, as [node.1]")
    return int(name)


def _verbs(path: Path, name: str, verbs: Any) -> Mapping[str, str]:
    where = f"--control {path}: [node.{name}]"
    if not isinstance(verbs, dict):
        raise ClusterError(f"{where} is a table of shell commands, and not {verbs!r}")
    for verb, command in verbs.items():
        if verb not in VERBS:
            raise ClusterError(f"{where} has {verb!r}: expected {', '.join(VERBS)}")
        if not isinstance(command, str) or not command.strip() or "\n" in command:
            raise ClusterError(f"{where}: {verb} is a shell command in one line, and not {command!r}")
    for verb, back in ENDED_BY.items():
        if verb in verbs and back not in verbs:
            raise ClusterError(f"{where} has {verb} and no {back}: the node would never come back")
    return dict(verbs)
