"""NodeTable: the processes that a zygote has forked, their status pipes, and their exit codes."""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.processes import (
    ProcessIdentity,
    clear_identity,
    describe_exit,
    identify,
    is_dying,
    write_identity,
)

DYING_SECONDS_MAX = 1.0
"""Maximum seconds that the start of a node waits for the end of the node's previous process, which was just killed."""


@dataclass(slots=True, eq=False)
class NodeProcess:
    """The latest process of a node. `state` is starting, ready, failed or ended; `ended` describes how it ended."""

    node_id: int
    identity: ProcessIdentity
    pipe: int
    starts: int
    is_broker: bool
    asked_to_stop: bool = False
    state: str = "starting"
    error: str = ""
    admin: str = ""
    """Address of the node's admin listener."""
    ended: str = ""
    text: bytes = b""

    def describe(self) -> dict[str, Any]:
        """Return the node as it appears in the response to the request `status`."""
        paused = not self.ended and self.identity.is_stopped
        return {
            "node": self.node_id,
            "pid": None if self.ended else self.identity.pid,
            "state": "paused" if paused else self.state,
            "ended": self.ended,
            "error": self.error,
            "starts": self.starts,
            "admin": "" if self.ended else self.admin,
        }


class NodeTable:
    """All nodes of one cluster, by node id. Each node has at most one running process."""

    def __init__(self, folder: ClusterFolder, selector: selectors.BaseSelector, log_level: str) -> None:
        self._folder = folder
        self._selector = selector
        self._log_level = log_level
        self.nodes: dict[int, NodeProcess] = {}

    @property
    def all_ended(self) -> bool:
        return all(node.ended for node in self.nodes.values())

    def is_running(self, node_id: int) -> bool:
        """Whether the node is running. If it was just killed, wait up to DYING_SECONDS_MAX for its end."""
        node = self.nodes.get(node_id)
        if node is None or node.ended:
            return False
        deadline = time.monotonic() + DYING_SECONDS_MAX
        while not node.ended and time.monotonic() < deadline and is_dying(node.identity.pid):
            time.sleep(0.001)
            self.reap()
        self.reap()
        return not node.ended

    def fork(self, node_id: int, cluster_id: str | None, close_in_child: Callable[[], None]) -> None:
        """Fork a process for the node. The child does nothing until its process is recorded in its folder."""
        folder = self._folder.node(node_id)
        reader, writer = os.pipe()
        gate_reader, gate_writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            os.close(gate_writer)
            from kraft.deploy.launch.child import run_child

            close_in_child()
            run_child(folder, gate_reader, writer, log_level=self._log_level, cluster_id=cluster_id)
        os.close(writer)
        os.close(gate_reader)
        identity = identify(pid) or ProcessIdentity(pid, "")
        write_identity(folder, identity)
        starts = self.nodes[node_id].starts + 1 if node_id in self.nodes else 1
        is_broker = self._folder.plan(node_id).broker_port is not None
        node = NodeProcess(node_id, identity, reader, starts, is_broker)
        self.nodes[node_id] = node
        os.set_blocking(reader, False)
        self._selector.register(reader, selectors.EVENT_READ, lambda: self._listen(node))
        os.close(gate_writer)

    @property
    def brokers_have_ended(self) -> bool:
        return all(node.ended for node in self.nodes.values() if node.is_broker)

    def resume_all(self) -> None:
        """Resume paused nodes, so that they can be stopped."""
        self._signal(self.nodes.values(), signal.SIGCONT)

    def stop_brokers(self) -> None:
        """Request every node that has the broker role to stop."""
        self._signal([node for node in self.nodes.values() if node.is_broker], signal.SIGTERM)

    def stop_controllers(self) -> None:
        """Request the nodes that are only controllers to stop, at most once per node."""
        asked = [node for node in self.nodes.values() if not node.is_broker and not node.asked_to_stop]
        self._signal(asked, signal.SIGTERM)
        for node in asked:
            node.asked_to_stop = True

    def kill_all(self) -> list[int]:
        """Kill the nodes still running, and return their ids."""
        left = [node for node in self.nodes.values() if not node.ended]
        self._signal(left, signal.SIGKILL)
        return [node.node_id for node in left]

    def reap(self) -> None:
        """Record the exit of every process that has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for node in self.nodes.values():
                if node.identity.pid == pid and not node.ended:
                    self._end(node, status)

    def close_in_child(self) -> None:
        """Close the descriptors that only the zygote may keep open. Called in a forked child."""
        for node in self.nodes.values():
            if node.pipe >= 0:
                os.close(node.pipe)

    @staticmethod
    def _signal(nodes: Iterable[NodeProcess], number: signal.Signals) -> None:
        for node in nodes:
            if not node.ended:
                node.identity.signal(number)

    def _listen(self, node: NodeProcess) -> bool:
        """Read the events that the node has reported. Return whether there may be more."""
        try:
            chunk = os.read(node.pipe, 65536)
        except BlockingIOError:
            return False
        if not chunk:
            self._selector.unregister(node.pipe)
            os.close(node.pipe)
            node.pipe = -1
            return False
        *lines, node.text = (node.text + chunk).split(b"\n")
        for line in lines:
            said = json.loads(line)
            node.state = said["event"]
            node.error = said.get("error", node.error)
            if "admin" in said:
                node.admin = said["admin"]
                self._write_admin_address(node)
        return True

    def _write_admin_address(self, node: NodeProcess) -> None:
        """Write the address to a file for people and scripts. Programs get it with `describe`, so a full disk is no
        fatal error."""
        try:
            self._folder.write_admin_address(node.node_id, node.admin)
        except OSError as problem:
            print(f"the address of node {node.node_id} is not noted in its folder: {problem}", flush=True)

    def _end(self, node: NodeProcess, status: int) -> None:
        while node.pipe >= 0 and self._listen(node):
            pass
        node.ended = describe_exit(status)
        node.state = "ended"
        if clear_identity(self._folder.node(node.node_id), node.identity):
            self._folder.clear_admin_address(node.node_id)
        why = f": {node.error}" if node.error else ""
        print(f"node {node.node_id} (pid {node.identity.pid}) has ended, {node.ended}{why}", flush=True)
