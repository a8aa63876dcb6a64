"""The zygote: one small process that has imported the modules that nodes need, and that forks each node.

It is single-threaded and blocking, and never runs trio. It opens only its control socket, the lock of its folder and a
status pipe per node, because every node inherits the open descriptors. Its requests are status, start, signal, wait,
down and detach. The process of a node is recorded in the node's folder before it runs, and its end is recorded when it
is reaped. If the zygote's first connection is *attached* and closes, the zygote stops all nodes and ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import math
import os
import selectors
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kraft.deploy.launch.control_server import Answer, Client, ControlServer, Pending, refusal
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.imports import NodeModules
from kraft.deploy.launch.node_table import NodeProcess, NodeTable
from kraft.deploy.launch.processes import identify, read_identity
from kraft.deploy.launch.streams import make_outputs_lossy

STOP_SECONDS_MAX = 30.0
"""Seconds that nodes have to stop cleanly before the zygote kills them."""
_IDLE_SECONDS = 0.5
"""Seconds between two checks of the event loop whether nodes have ended."""


class Zygote:
    """The zygote's event loop, and the handlers of its requests."""

    def __init__(self, folder: ClusterFolder, modules: NodeModules, *, log_level: str, is_temporary: bool) -> None:
        self._folder = folder
        self._modules = modules
        self._is_temporary = is_temporary
        self._selector = selectors.DefaultSelector()
        self._table = NodeTable(folder, self._selector, log_level)
        self._server = ControlServer(self._selector, self._handle, self.begin_down)
        self._lock = -1
        self._wakeup = (-1, -1)
        self._stopping_since: float | None = None
        self._killed: list[int] = []
        """Nodes that were killed because they did not stop cleanly in time."""
        self._verbs: dict[str, Callable[[Client, Answer], Answer | Pending]] = {
            "status": self._status,
            "start": self._start,
            "signal": self._signal,
            "wait": self._wait,
            "down": self._down,
            "detach": self._detach,
        }

    def open(self, connection: socket.socket, *, attached: bool) -> None:
        """Take the folder's lock and open the control socket. Raise LaunchError if another zygote has the lock, or if
        nodes are running."""
        self._lock = take_lock(self._folder)
        require_no_running_nodes(self._folder)
        try:
            self._server.listen(self._folder.socket)
        except OSError as problem:
            why = f"cannot make a socket in {self._folder.path}: {problem.strerror}; choose another --data"
            raise LaunchError("folder", why) from None
        self._wakeup = os.pipe()
        for descriptor in self._wakeup:
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.begin_down())
        signal.signal(signal.SIGINT, lambda *_: self.begin_down())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._selector.register(self._wakeup[0], selectors.EVENT_READ, self._woken)
        identity = identify(os.getpid())
        assert identity is not None
        self._folder.zygote_identity.write_text(json.dumps({"pid": identity.pid, "started": identity.started}))
        self._server.add(connection, attached=attached)

    def run(self) -> None:
        """Serve requests until all nodes are down."""
        while self._stopping_since is None or not self._table.all_ended:
            self._continue_down()
            for entry, _ in self._selector.select(self._timeout()):
                entry.data()
            self._table.reap()
            self._server.answer_waiting()
        self._server.answer_waiting()
        self._folder.socket.unlink(missing_ok=True)
        self._folder.zygote_identity.unlink(missing_ok=True)
        if self._is_temporary:
            shutil.rmtree(self._folder.path, ignore_errors=True)

    def begin_down(self) -> None:
        """Request every node to stop: brokers first, because their clean stop needs the controllers."""
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()
            self._table.resume_all()
            self._table.stop_brokers()

    def _continue_down(self) -> None:
        if self._stopping_since is None:
            return
        if time.monotonic() > self._stopping_since + STOP_SECONDS_MAX:
            self._killed += [node_id for node_id in self._table.kill_all() if node_id not in self._killed]
        elif self._table.brokers_have_ended:
            self._table.stop_controllers()

    # handlers of requests

    def _handle(self, client: Client, request: Answer) -> Answer | Pending:
        verb = self._verbs.get(request["verb"])
        return verb(client, request) if verb else refusal("request", f"the zygote knows no verb {request['verb']!r}")

    def _status(self, client: Client, request: Answer) -> Answer:
        nodes = [node.describe() for node in self._table.nodes.values()]
        return {"ok": True, "pid": os.getpid(), "is_ending": self._stopping_since is not None, "nodes": nodes}

    def _start(self, client: Client, request: Answer) -> Answer:
        if self._stopping_since is not None:
            return refusal("busy", "the cluster is going down")
        wanted = [int(node_id) for node_id in request["nodes"]]
        for node_id in wanted:
            if self._table.is_running(node_id):
                pid = self._table.nodes[node_id].identity.pid
                return refusal("running", f"node {node_id} already runs (pid {pid})")
        new = {int(node_id) for node_id in request.get("format", ())}
        for node_id in wanted:
            if self._folder.plan(node_id).broker_port is not None:
                self._modules.import_for_broker()
                if len(wanted) > 1:
                    self._modules.import_messages()
            # From here on, the garbage collector no longer visits the objects that exist now, so their memory stays
            # shared with the children.
            gc.freeze()
            try:
                self._table.fork(node_id, request.get("cluster_id") if node_id in new else None, self._close_in_child)
            except OSError as problem:
                return refusal("start", f"node {node_id} cannot be started: {problem}")
        return {"ok": True, "nodes": [self._table.nodes[node_id].describe() for node_id in wanted]}

    def _signal(self, client: Client, request: Answer) -> Answer:
        node_id = int(request["node"])
        node = self._table.nodes.get(node_id)
        if node is None or node.ended or not node.identity.signal(signal.Signals[request["signal"]]):
            return refusal("not-running", f"node {node_id} does not run; start it with kraft start {node_id}")
        return {"ok": True, "pid": node.identity.pid}

    def _wait(self, client: Client, request: Answer) -> Pending:
        wanted = [self._table.nodes[int(node_id)] for node_id in request["nodes"] if int(node_id) in self._table.nodes]
        until_ready = request["until"] == "ready"

        def condition() -> Answer | None:
            return self._all_ready(wanted) if until_ready else _all_ended(wanted)

        def late() -> Answer:
            late = [node for node in wanted if not node.ended and not (until_ready and node.state == "ready")]
            missing = ", ".join(f"{node.node_id} (pid {node.identity.pid})" for node in late)
            advice = "see kraft logs" if until_ready else "kraft kill ends it at once"
            return refusal(
                "late", f"after {request['timeout_s']:g} s still not {request['until']}: node {missing}; {advice}"
            )

        return Pending(condition, time.monotonic() + float(request["timeout_s"]), late)

    def _down(self, client: Client, request: Answer) -> Pending:
        self.begin_down()

        def condition() -> Answer | None:
            return {"ok": True, "killed": self._killed} if self._table.all_ended else None

        return Pending(condition, math.inf, lambda: {"ok": True})

    def _detach(self, client: Client, request: Answer) -> Answer:
        client.attached = False
        return {"ok": True}

    def _all_ready(self, nodes: list[NodeProcess]) -> Answer | None:
        if self._stopping_since is not None:
            return refusal("busy", "the cluster was ended by kraft down before all its nodes were ready")
        for node in nodes:
            # a node that reported a failure still runs for a moment, and cannot be started again during that time
            if node.ended:
                log = self._folder.node(node.node_id) / "node.log"
                why = node.error or f"{node.ended}; the end of {log} says more"
                return refusal("start", f"node {node.node_id} did not start: {why}")
        return {"ok": True} if all(node.state == "ready" for node in nodes) else None

    # parts of the loop

    def _close_in_child(self) -> None:
        """In a forked node, close everything that only the zygote may keep open."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        self._selector.close()
        self._server.close()
        self._table.close_in_child()
        for descriptor in (self._lock, *self._wakeup):
            os.close(descriptor)

    def _timeout(self) -> float | None:
        deadline = self._server.next_deadline
        wait = None if deadline is None else max(0.0, deadline - time.monotonic())
        if self._stopping_since is not None:
            return _IDLE_SECONDS if wait is None else min(wait, _IDLE_SECONDS)
        return wait

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup[0], 4096)


def take_lock(folder: ClusterFolder) -> int:
    """Return the descriptor of the folder's lock, now held by this process. Raise LaunchError if another zygote holds
    it, or if the folder is not writable."""
    try:
        descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise LaunchError("folder", f"cannot write below {folder.path}: {problem.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise LaunchError(
            "busy",
            f"a cluster is already up in {folder.path}; see kraft status --data {folder.path}, "
            f"end it with kraft down --data {folder.path}",
        ) from None
    return descriptor


def lock_new_folder(folder: ClusterFolder) -> tuple[int, bool]:
    """Lock a folder, and create it if it does not exist. Return the lock, and whether the folder was created."""
    is_new = False
    try:
        folder.path.parent.mkdir(parents=True, exist_ok=True)
        folder.path.mkdir()
        is_new = True
    except OSError as problem:
        if not folder.path.is_dir():
            raise LaunchError("folder", f"cannot use the folder {folder.path}: {problem.strerror}") from None
    return take_lock(folder), is_new


def require_no_running_nodes(folder: ClusterFolder) -> None:
    """Raise LaunchError if a node of this folder is still running although its zygote has ended."""
    for entry in sorted(folder.path.iterdir()):
        identity = read_identity(entry) if entry.name.isdigit() else None
        if identity is not None and identity.is_alive:
            raise LaunchError(
                "busy",
                f"node {entry.name} of {folder.path} still runs from an earlier start (pid {identity.pid}); "
                f"end it with kraft down --data {folder.path}",
            )


def zygote_main(connection: socket.socket) -> int:
    """Run a zygote from start to end. The first line on `connection` names the folder. If the connection closes before
    this line, the zygote ends."""
    _leave_terminal()
    gc.disable()
    modules = NodeModules()
    modules.import_for_every_node()
    request = _first_line(connection)
    if not request:
        return 0
    folder = ClusterFolder(request["data"])
    _redirect_output(folder.zygote_log)
    zygote = Zygote(folder, modules, log_level=request["log_level"], is_temporary=request["is_temporary"])
    try:
        zygote.open(connection, attached=request["attached"])
    except LaunchError as problem:
        connection.sendall(json.dumps(refusal(problem.kind, str(problem))).encode() + b"\n")
        return 1
    from setproctitle import setproctitle

    setproctitle(f"kraft zygote {folder.path}")
    connection.sendall(b'{"ok": true}\n')
    zygote.run()
    return 0


def _all_ended(nodes: list[NodeProcess]) -> Answer | None:
    return {"ok": True} if all(node.ended for node in nodes) else None


def _first_line(connection: socket.socket) -> Answer:
    text = b""
    while not text.endswith(b"\n"):
        chunk = connection.recv(4096)
        if not chunk:
            return {}
        text += chunk
    answer: Answer = json.loads(text)
    return answer


def _leave_terminal() -> None:
    with contextlib.suppress(PermissionError):
        os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _redirect_output(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    make_outputs_lossy()


if __name__ == "__main__":
    sys.exit(zygote_main(socket.socket(fileno=int(sys.argv[1]))))
