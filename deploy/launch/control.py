"""LocalCluster: start, observe, kill, pause and stop the nodes of one folder.

Operations go through the zygote. If the zygote has died, its nodes keep running. Signals are then sent to the recorded
processes, and a node is started in a new interpreter. Every method raises LaunchError with a text that names the
remedy.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.folder import ClusterFolder, remember_last
from kraft.deploy.launch.layout import ClusterLayout, NodePlan
from kraft.deploy.launch.node_command import BadNodeCommand, NodeCommand
from kraft.deploy.launch.ports import require_free
from kraft.deploy.launch.processes import (
    ProcessIdentity,
    clear_identity,
    identify,
    read_identity,
    read_identity_file,
    write_identity,
)
from kraft.deploy.launch.zygote import STOP_SECONDS_MAX, lock_new_folder, require_no_running_nodes
from kraft.deploy.launch.zygote_client import ask_zygote, exchange, require_unlocked
from kraft.deploy.launch.zygote_start import ZygoteStart, spawn_zygote

READY_SECONDS_MAX = 60.0
PAUSE_SECONDS_MAX = 2.0
_POLL_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """State of a node as the launcher reports it. `state` is starting, ready, paused or ended; it is running if only
    the node's pid file is available to the launcher."""

    node_id: int
    roles: tuple[str, ...]
    ports: tuple[int, ...]
    pid: int | None
    state: str
    ended: str
    starts: int
    admin: str = ""
    """HOST:PORT of the node's admin listener; empty if it has none, or if the node is not running."""


class LocalCluster:
    """The cluster of one folder. Create one with `up` or `find`."""

    def __init__(self, folder: ClusterFolder, layout: ClusterLayout, cluster_id: str) -> None:
        self.folder = folder
        self.layout = layout
        self.cluster_id = cluster_id
        self._held: ZygoteStart | None = None
        self._is_remembered = False
        self.notices: tuple[str, ...] = ()
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    @staticmethod
    def find(folder: ClusterFolder) -> LocalCluster:
        """Return the cluster that was started in this folder, running or not."""
        layout, cluster_id = folder.read()
        return LocalCluster(folder, layout, cluster_id)

    @staticmethod
    def up(
        folder: ClusterFolder,
        layout: ClusterLayout,
        cluster_id: str,
        *,
        zygote: ZygoteStart | None = None,
        is_temporary: bool = False,
        is_remembered: bool = True,
        log_level: str = "info",
        before_start: Callable[[], None] = lambda: None,
    ) -> LocalCluster:
        """Start all nodes of a new or stopped cluster, and return before they are ready.

        The cluster is *attached*: it is stopped when the process of this object ends, unless `detach` is called before.

        - `is_temporary`: the folder is deleted when the cluster is stopped.
        - `is_remembered`: once all nodes are ready, the `kraft` command acts on this cluster by default.
        - `zygote`: a zygote that was started early and is used now; it is ended if the start fails.
        - `before_start`: called when the folder has every node's `server.properties`, and no node runs yet.

        If the start fails before a node process exists, for example because a port is in use, no new folder remains."""
        zygote = zygote or spawn_zygote()
        cluster = LocalCluster(folder, layout, cluster_id)
        cluster._is_remembered = is_remembered
        try:
            cluster._prepare()
            before_start()
            opening = {
                "data": str(folder.path),
                "attached": True,
                "is_temporary": is_temporary,
                "log_level": log_level,
            }
            exchange(zygote.connection, opening)
            cluster._held = zygote
            cluster._start_all()
        except BaseException:
            zygote.abandon()
            raise
        return cluster

    @property
    def node_ids(self) -> list[int]:
        return [node.node_id for node in self.layout.nodes()]

    @property
    def bootstrap_servers(self) -> str:
        return self.layout.bootstrap_servers()

    @property
    def is_up(self) -> bool:
        """Whether a zygote or any node is running."""
        zygote = read_identity_file(self.folder.zygote_identity)
        return (zygote is not None and zygote.is_alive) or any(status.pid is not None for status in self.status())

    def require_all_up(self) -> None:
        """Raise LaunchError with the nodes that are not running, if any."""
        missing = [one.node_id for one in self.status() if one.state not in ("ready", "running")]
        if missing:
            how = ", ".join(f"kraft start {node_id}" for node_id in missing)
            raise LaunchError("not-running", f"not all nodes of {self.folder.path} serve; start them first: {how}")

    @property
    def is_ending(self) -> bool:
        """Whether the launcher is stopping all nodes, or has stopped them all and ended: `kraft down` was called
        elsewhere."""
        answer = self._ask({"verb": "status"})
        return not self.folder.socket.exists() if answer is None else bool(answer["is_ending"])

    def wait_launcher(self) -> None:
        """Wait until the launcher, which is stopping the nodes, has ended and a temporary folder is deleted."""
        self._wait_zygote_gone(read_identity_file(self.folder.zygote_identity))

    def detach(self) -> None:
        """Keep the cluster running when this process ends."""
        if self._held is not None:
            exchange(self._held.connection, {"verb": "detach"})

    def status(self) -> list[NodeStatus]:
        """Return the status of every node, in the layout's order."""
        try:
            answer = self._ask({"verb": "status"})
        except LaunchError as problem:
            if problem.kind != "not-ours":
                raise
            answer = None
        known = {} if answer is None else {node["node"]: node for node in answer["nodes"]}
        return [self._status_of(plan, known.get(plan.node_id)) for plan in self.layout.nodes()]

    def wait_ready(self, node_ids: Sequence[int] | None = None, *, timeout_s: float = READY_SECONDS_MAX) -> None:
        """Block until these nodes (default: all) are ready. Raise LaunchError if one of them has ended, or at the
        timeout."""
        wanted = self.node_ids if node_ids is None else list(node_ids)
        self._require_answer({"verb": "wait", "nodes": wanted, "until": "ready", "timeout_s": timeout_s})
        if node_ids is None and self._is_remembered:
            remember_last(self.folder)

    def start(self, node_id: int, *, until_ready: bool = True, formats: bool = False) -> None:
        """Start one node that is not running, and block until it is ready. If `until_ready` is false and there is a
        zygote, block only until the node is forked.

        `formats`: the node's log directories are empty, and are formatted for this cluster (with a zygote only). With
        `until_ready`, raise LaunchError at once if the node would wait for controllers and none of them is running."""
        plan = self.folder.plan(node_id)
        if until_ready:
            self._require_controller(plan)
        request = {"verb": "start", "nodes": [node_id]}
        if formats:
            request |= {"format": [node_id], "cluster_id": self.cluster_id}
        if self._ask(request) is None:
            self._start_by_exec(node_id)
        elif until_ready:
            self.wait_ready([node_id])

    def send_signal(self, node_id: int, number: signal.Signals) -> int:
        """Send a signal to a node. Return its process id."""
        self.folder.plan(node_id)
        answer = self._ask({"verb": "signal", "node": node_id, "signal": number.name})
        if answer is not None:
            return int(answer["pid"])
        identity = read_identity(self.folder.node(node_id))
        if identity is None or not identity.signal(number):
            raise LaunchError("not-running", f"node {node_id} does not run; start it with kraft start {node_id}")
        return identity.pid

    def kill(self, node_id: int) -> int:
        """Kill a node with SIGKILL and wait until it has ended. Return its process id."""
        pid = self.send_signal(node_id, signal.SIGKILL)
        self.wait_ended([node_id])
        return pid

    def stop(self, node_id: int, *, timeout_s: float = STOP_SECONDS_MAX) -> int:
        """Stop a node cleanly and wait until it has ended. Return its process id."""
        pid = self.ask_to_stop(node_id)
        self.wait_ended([node_id], timeout_s=timeout_s)
        return pid

    def ask_to_stop(self, node_id: int) -> int:
        """Request a clean stop of a node, even if it is paused. Return its process id."""
        self.send_signal(node_id, signal.SIGCONT)
        return self.send_signal(node_id, signal.SIGTERM)

    def wait_ended(self, node_ids: list[int], *, timeout_s: float = STOP_SECONDS_MAX) -> None:
        """Block until these nodes have ended. Raise LaunchError at the timeout."""
        request = {"verb": "wait", "nodes": node_ids, "until": "ended", "timeout_s": timeout_s}
        if self._ask(request, timeout_s=None) is not None:
            return
        deadline = time.monotonic() + timeout_s
        for node_id in node_ids:
            identity = read_identity(self.folder.node(node_id))
            if identity is None:
                continue
            while identity.is_alive:
                if time.monotonic() > deadline:
                    raise LaunchError("late", f"node {node_id} (pid {identity.pid}) does not end; kraft kill {node_id}")
                time.sleep(_POLL_SECONDS)
            if clear_identity(self.folder.node(node_id), identity):
                self.folder.clear_admin_address(node_id)
            child = self._children.get(node_id)
            if child is not None and child.pid == identity.pid:
                self._children.pop(node_id).wait()

    def pause(self, node_id: int) -> int:
        """Pause a node with SIGSTOP and wait until the process is stopped. Return its process id."""
        pid = self.send_signal(node_id, signal.SIGSTOP)
        _wait_stopped(pid, True)
        return pid

    def resume(self, node_id: int) -> int:
        """Resume a node with SIGCONT. Return its process id."""
        pid = self.send_signal(node_id, signal.SIGCONT)
        _wait_stopped(pid, False)
        return pid

    def down(self) -> list[int]:
        """Stop all nodes cleanly, kill those still running after a timeout, and end the zygote. Return the killed
        nodes. Raise LaunchError that names the processes that cannot be ended."""
        zygote = read_identity_file(self.folder.zygote_identity)
        if zygote is not None:
            zygote.signal(signal.SIGCONT)
        answer = self._ask({"verb": "down"}, timeout_s=None)
        if answer is None and zygote is not None:
            # the zygote's socket file was removed: a signal has the same effect as the request
            zygote.signal(signal.SIGTERM)
        self._wait_zygote_gone(zygote)
        killed = [] if answer is None else [int(node) for node in answer.get("killed", ())]
        killed += self._down_by_identities()
        require_unlocked(self.folder)
        return killed

    # with a zygote

    def _prepare(self) -> None:
        lock, is_new = lock_new_folder(self.folder)
        try:
            require_no_running_nodes(self.folder)
            require_free(port for node in self.layout.nodes() for port in node.ports)
            self.notices = self.folder.create(self.layout, self.cluster_id)
        except BaseException:
            if is_new:  # no other process uses the folder, because we hold its lock
                shutil.rmtree(self.folder.path, ignore_errors=True)
            raise
        finally:
            os.close(lock)

    def _start_all(self) -> None:
        new = [node_id for node_id in self.node_ids if not (self.folder.node(node_id) / "node.log").exists()]
        request = {"verb": "start", "nodes": self.node_ids, "format": new, "cluster_id": self.cluster_id}
        assert self._held is not None
        exchange(self._held.connection, request)

    def _ask(self, request: dict[str, Any], *, timeout_s: float | None = 10.0) -> dict[str, Any] | None:
        return ask_zygote(self.folder, request, timeout_s=timeout_s)

    def _require_answer(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = self._ask(request, timeout_s=None)
        if answer is None:
            why = f"by kraft down, or see {self.folder.zygote_log}"
            raise LaunchError("zygote", f"the launcher of {self.folder.path} has ended: {why}")
        return answer

    def _zygote_answers(self) -> bool:
        return self._ask({"verb": "status"}) is not None

    def _wait_zygote_gone(self, zygote: ProcessIdentity | None) -> None:
        if self._held is not None:
            self._held.connection.close()
            self._held.wait()
            return
        deadline = time.monotonic() + STOP_SECONDS_MAX + 5.0
        while zygote is not None and zygote.is_alive:
            if time.monotonic() > deadline:
                raise LaunchError(
                    "zygote",
                    f"the launcher (pid {zygote.pid}) does not end; see {self.folder.zygote_log}, or end it with "
                    f"kill -9 {zygote.pid} and try again",
                )
            time.sleep(_POLL_SECONDS)

    # without a zygote

    def _status_of(self, plan: NodePlan, told: dict[str, Any] | None) -> NodeStatus:
        node_id = plan.node_id
        if told is not None:
            pid, admin = told["pid"], told.get("admin", "")
            return NodeStatus(node_id, plan.roles, plan.ports, pid, told["state"], told["ended"], told["starts"], admin)
        identity = read_identity(self.folder.node(node_id))
        if identity is None or not identity.is_alive:
            return NodeStatus(node_id, plan.roles, plan.ports, None, "ended", "", 0)
        state = "paused" if identity.is_stopped else "running"
        return NodeStatus(
            node_id, plan.roles, plan.ports, identity.pid, state, "", 0, self.folder.admin_address(node_id)
        )

    def _start_by_exec(self, node_id: int) -> None:
        folder = self.folder.node(node_id)
        noted = read_identity(folder)
        if noted is not None and noted.is_alive:
            raise LaunchError("running", f"node {node_id} already runs (pid {noted.pid})")
        try:
            command = NodeCommand.read(folder) or NodeCommand()
        except BadNodeCommand as problem:
            raise LaunchError("start", f"node {node_id} cannot be started: {problem}") from None
        reader, writer = os.pipe()
        with open(folder / "node.log", "ab") as log:
            process = subprocess.Popen(
                command.words(folder, writer),
                env={**os.environ, **command.environment},
                pass_fds=[writer],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )
        os.close(writer)
        self._children[node_id] = process
        write_identity(folder, identify(process.pid) or ProcessIdentity(process.pid, ""))
        self.folder.clear_admin_address(node_id)
        for said in _events(node_id, reader, str(folder / "node.log")):
            if "admin" in said:
                self.folder.write_admin_address(node_id, said["admin"])

    def _require_controller(self, plan: NodePlan) -> None:
        controllers = [node.node_id for node in self.layout.nodes() if node.controller_port is not None]
        if any(self._is_alive(node_id) for node_id in controllers) or controllers == [plan.node_id]:
            return
        if not self._zygote_answers():
            how = f"start all with {self.folder.start_command}"
        elif plan.controller_port is None:
            how = "start them first: " + ", ".join(f"kraft start {node_id}" for node_id in controllers)
        else:
            return  # one controller must start first; it becomes ready only once a majority of the controllers runs
        raise LaunchError("start", f"no controller of the cluster in {self.folder.path} runs; {how}")

    def _is_alive(self, node_id: int) -> bool:
        noted = read_identity(self.folder.node(node_id))
        return noted is not None and noted.is_alive

    def _signal_recorded(self, node_ids: list[int], *numbers: signal.Signals) -> None:
        for node_id in node_ids:
            identity = read_identity(self.folder.node(node_id))
            for number in numbers:
                if identity is not None:
                    identity.signal(number)

    def _down_by_identities(self) -> list[int]:
        killed: list[int] = []
        nodes = self.layout.nodes()
        brokers = [node.node_id for node in nodes if node.broker_port is not None]
        controllers = [node.node_id for node in nodes if node.broker_port is None]
        for node_ids in (brokers, controllers):
            self._signal_recorded(node_ids, signal.SIGCONT, signal.SIGTERM)
            try:
                self.wait_ended(node_ids, timeout_s=STOP_SECONDS_MAX)
            except LaunchError:
                killed += [node.node_id for node in self.status() if node.node_id in node_ids and node.pid is not None]
                self._signal_recorded(node_ids, signal.SIGKILL)
                self.wait_ended(node_ids, timeout_s=STOP_SECONDS_MAX)
        self.folder.socket.unlink(missing_ok=True)
        self.folder.zygote_identity.unlink(missing_ok=True)
        return killed


def _wait_stopped(pid: int, stopped: bool) -> None:
    """Block until a process is stopped, or until it continues. The wait is needed because the kernel delivers signals
    asynchronously."""
    identity = identify(pid)
    deadline = time.monotonic() + PAUSE_SECONDS_MAX
    while identity is not None and identity.is_stopped is not stopped and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _events(node_id: int, reader: int, log: str) -> Iterator[dict[str, Any]]:
    """Yield the start events of a node that was started without a zygote; the last one is that it is ready. Raise
    LaunchError if the start fails."""
    text = b""
    deadline = time.monotonic() + READY_SECONDS_MAX
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while True:
            readable, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            chunk = pipe.read(65536) if readable else b""
            if not chunk:
                raise LaunchError(
                    "start",
                    f"node {node_id} did not become ready; is a majority of the controllers up? see kraft status and "
                    f"the end of {log}",
                )
            *lines, text = (text + chunk).split(b"\n")
            for said in map(json.loads, lines):
                if said["event"] == "failed":
                    raise LaunchError("start", f"node {node_id} did not start: {said.get('error', '')}")
                yield said
                if said["event"] == "ready":
                    return
