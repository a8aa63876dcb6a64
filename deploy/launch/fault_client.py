"""FaultClient: tells a running node, over its fault control socket, to break its links, answers and syncs on purpose.

The node must have been started with such a socket (`kraft up --fault-control`, `kraft node --fault-control SOCKET`).
Blocking; every method raises LaunchError with a text that says what to do.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import FAULT_SOCKET
from kraft.deploy.launch.socket_path import short_path

ANSWER_SECONDS_MAX = 10.0


class FaultClient:
    """One node's faults. `path` is the socket's."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @staticmethod
    def of_node(folder: ClusterFolder, node_id: int) -> FaultClient:
        """The faults of a launched node."""
        folder.plan(node_id)
        return FaultClient(folder.node(node_id) / FAULT_SOCKET)

    def link(self, node_id: int, policy: str, **more: Any) -> None:
        """What this node does from now on when it dials `node_id`, and to the connections that it has dialled there:
        open, refuse, hang or reset; with `listener` on that listener only. `sends` and `receives` say how bytes fare on
        them (the fields of `kraft.seam.LinkQuality`), if not well."""
        self._ask(verb="link", node=node_id, policy=policy, **more)

    def leave(self, links: Mapping[int, Mapping[str, Any]]) -> None:
        """What a node that has not opened its socket yet does first of all: the arguments of `link`, by peer."""
        from kraft.runtime.fault_control import FIRST_SUFFIX

        path = self._path.with_name(self._path.name + FIRST_SUFFIX)
        if not links:
            path.unlink(missing_ok=True)
            return
        draft = path.with_name(path.name + ".tmp")
        draft.write_text(
            "".join(json.dumps({"verb": "link", "node": peer, **how}) + "\n" for peer, how in links.items())
        )
        draft.replace(path)

    def reply(self, **rule: Any) -> int:
        """Add a reply rule (see `kraft.wire.reply_policy.rule_from`); its number."""
        return int(self._ask(verb="reply", **rule)["rule"])

    def slow_syncs(self, delay_ms: int) -> None:
        """Let each of the node's syncs take so much longer from now on, and fail no more; 0: as the device does. See
        `kraft.runtime.disk_faults` for what that can show."""
        self._ask(verb="disk", sync_delay_ms=delay_ms)

    def fail_syncs(self, fails: bool) -> None:
        """Let the node's syncs fail from now on, or be as the device does."""
        self._ask(verb="disk", fail_syncs=fails)

    def syncs_broken(self) -> tuple[int, int]:
        """How many syncs have waited, and how many have failed on purpose, since the node started."""
        found = self._ask(verb="list")["disk"]
        return int(found["syncs_delayed"]), int(found["syncs_failed"])

    def wall_ms(self) -> int:
        """The time as the node's clock has it, in ms since 1970."""
        return int(self._ask(verb="clock")["wall_ms"])

    def clear(self, rule: int | None = None) -> None:
        """Drop one rule, or all faults of the node."""
        self._ask(verb="clear", **({} if rule is None else {"rule": rule}))

    def applied(self, rule: int) -> int:
        """How often a rule was applied, also one that is used up or removed."""
        return int(self._ask(verb="list")["applied"].get(str(rule), 0))

    def listed(self) -> dict[str, Any]:
        """The faults in force: `links`, `qualities` and `rules`."""
        answer = self._ask(verb="list")
        return {name: answer[name] for name in ("links", "qualities", "rules")}

    def _ask(self, **request: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_SECONDS_MAX)
            try:
                with short_path(self._path) as path:
                    connection.connect(path)
                connection.sendall(json.dumps(request).encode() + b"\n")
                answer = json.loads(connection.makefile("rb").readline() or b"{}")
            except OSError as problem:
                raise LaunchError(
                    "not-running",
                    f"no node listens at {self._path} ({problem.strerror or problem}); "
                    "it must run, and be started with --fault-control",
                ) from None
        if not answer.get("ok"):
            raise LaunchError("request", answer.get("error", f"the node at {self._path} ended before it answered"))
        return dict(answer)
