"""Send requests to the zygote of a folder, over the control socket in that folder. Each request has one response."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.socket_path import short_path
from kraft.deploy.launch.zygote import take_lock

LOCK_SECONDS_MAX = 2.0
"""Maximum seconds for which a process that is not recorded may hold the folder's lock. Such a process may be a launcher
that is ending or has not written its record yet, or a `kraft up` that inspects the folder."""
_POLL_SECONDS = 0.005


def ask_zygote(folder: ClusterFolder, request: dict[str, Any], *, timeout_s: float | None) -> dict[str, Any] | None:
    """Send a request. Return the zygote's response, or None if there is no zygote. Raise LaunchError if the zygote
    belongs to another user, or rejects the request."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            with short_path(folder.socket) as path:
                connection.connect(path)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            return None
        except PermissionError:
            raise LaunchError(
                "not-ours", f"the cluster in {folder.path} is another user's; act on it as that user or as root"
            ) from None
        try:
            return exchange(connection, request)
        except LaunchError as problem:
            if problem.kind == "zygote" and not folder.socket.exists():
                return None  # the zygote has ended cleanly in the meantime
            raise


def exchange(connection: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
    """Send one request and return the response. Raise LaunchError if the zygote rejects the request, or ends."""
    try:
        connection.sendall(json.dumps(request).encode() + b"\n")
        text = b""
        while not text.endswith(b"\n"):
            chunk = connection.recv(65536)
            if not chunk:
                raise LaunchError("zygote", "the launcher ended before it responded; see zygote.log in the data folder")
            text += chunk
    except (BrokenPipeError, ConnectionResetError, TimeoutError) as problem:
        raise LaunchError(
            "zygote", f"the launcher does not respond ({problem}); see zygote.log in the folder"
        ) from None
    answer: dict[str, Any] = json.loads(text)
    if not answer.get("ok"):
        raise LaunchError(answer.get("kind", "start"), answer.get("error", "the launcher refused"))
    return answer


def require_unlocked(folder: ClusterFolder) -> None:
    """Wait until no unrecorded process holds the folder's lock, blocking. Raise LaunchError after LOCK_SECONDS_MAX,
    because the cluster could not be started again."""
    deadline = time.monotonic() + LOCK_SECONDS_MAX
    while folder.lock.exists() and not _is_unlocked(folder):
        if time.monotonic() > deadline:
            raise LaunchError(
                "zygote",
                f"a process that {folder.path} does not know still holds {folder.lock}: find it with "
                f"fuser {folder.lock}, end it, and try again",
            )
        time.sleep(_POLL_SECONDS)


def _is_unlocked(folder: ClusterFolder) -> bool:
    """Whether the lock is free, as far as this user can tell."""
    try:
        os.close(take_lock(folder))
    except LaunchError as problem:
        return problem.kind != "busy"
    return True
