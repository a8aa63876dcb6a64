"""Ports: check whether they are free, and find the process that uses one."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import HOST, ClusterLayout
from kraft.deploy.launch.processes import read_identity

_LISTENING = "0A"


FIRST_PORT, LAST_PORT = 10_000, 32_000
"""First and last port from which `--port 0` chooses. These ports are below the range that the system uses for outgoing
connections."""
TRIES_MAX = 200


def require_free(ports: Iterable[int]) -> None:
    """Raise LaunchError for the first of these ports that cannot be used. The text has the reason and, if visible, the
    process that uses the port."""
    for port in ports:
        failure = _bind_failure(port)
        if failure is None:
            continue
        if failure.errno == errno.EADDRINUSE:
            raise LaunchError("port", f"port {port} is taken{_describe_owner(port)} or choose another --port")
        if failure.errno in (errno.EACCES, errno.EPERM):
            why = "this user may not listen on it, as on most ports below 1024; choose a higher --port"
            raise LaunchError("port", f"port {port}: {why}")
        raise LaunchError("port", f"port {port}: cannot listen on {HOST} ({failure.strerror}); choose another --port")


def is_free(port: int) -> bool:
    """Whether a listener can bind this port on the loopback address."""
    return _bind_failure(port) is None


def choose_port(layout: ClusterLayout) -> ClusterLayout:
    """Return the layout with a random first port such that all its ports are free now. Raise LaunchError if none is
    found."""
    draw = random.SystemRandom()
    offsets = [
        port - layout.port for node in layout.nodes() for port in (node.broker_port, node.controller_port) if port
    ]
    for _ in range(TRIES_MAX):
        first = draw.randrange(FIRST_PORT, LAST_PORT - max(offsets))
        if all(is_free(first + offset) for offset in offsets):
            return replace(layout, port=first)
    raise LaunchError("port", f"no free ports for this cluster between {FIRST_PORT} and {LAST_PORT}; give --port")


def _bind_failure(port: int) -> OSError | None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as failure:
            return failure
    return None


def _describe_owner(port: int) -> str:
    """Describe the process that uses a port, and how to free the port."""
    pid = owner_of(port)
    if pid is None:
        return "; stop that process"
    folder = cluster_of(pid)
    if folder is None:
        return f" by {_named(pid)}; stop that process"
    return f": the cluster in {folder} has it; end it with kraft down --data {folder},"


def cluster_of(pid: int) -> Path | None:
    """Return the folder of the cluster to which the node in this process belongs; None if the process is no node. A
    node's working directory is its folder in that of the cluster."""
    try:
        node = Path(os.readlink(f"/proc/{pid}/cwd"))
    except OSError:
        return None
    noted = read_identity(node)
    is_node = noted is not None and noted.pid == pid and ClusterFolder(node.parent).exists()
    return node.parent if is_node else None


def _named(pid: int) -> str:
    try:
        return f"{Path(f'/proc/{pid}/comm').read_text().strip()} (pid {pid})"
    except OSError:
        return f"pid {pid}"


def owner_of(port: int) -> int | None:
    """Return the process that listens on this port; None if /proc does not show it to this user."""
    inodes = {f"socket:[{inode}]" for table in ("tcp", "tcp6") for inode in _listening_inodes(table, port)}
    if not inodes:
        return None
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _has_any(process / "fd", inodes):
            return int(process.name)
    return None


def _listening_inodes(table: str, port: int) -> Iterable[str]:
    try:
        lines = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]


def _has_any(descriptors: Path, wanted: set[str]) -> bool:
    try:
        return any(os.readlink(entry) in wanted for entry in descriptors.iterdir())
    except OSError:
        return False
