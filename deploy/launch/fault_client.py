"""FaultClient: makes a running node inject faults into its links, responses and syncs, over its fault control socket.

The node must have been started with such a socket (`kraft up --fault-control`, `kraft node --fault-control SOCKET`).
Every method blocks, and raises LaunchError with a text that names the remedy.
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
    """Lists and changes the injected faults of one node. `path` is the path of the node's fault control socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @staticmethod
    def of_node(folder: ClusterFolder, node_id: int) -> FaultClient:
        """Return the fault client of a node that the launcher has started."""
        folder.plan(node_id)
        return FaultClient(folder.node(node_id) / FAULT_SOCKET)

    def link(self, node_id: int, policy: str, **more: Any) -> None:
        """Set how this node treats its connections to `node_id`, both new and existing ones: open, refuse, hang or
        reset. With `listener`, only connections to that listener are treated so. `sends` and `receives` degrade the
        traffic in one direction; each is a mapping of fields of `kraft.seam.LinkQuality`."""
        self._ask(verb="link", node=node_id, policy=policy, **more)

    def leave(self, links: Mapping[int, Mapping[str, Any]]) -> None:
        """Store link faults that a node applies as soon as it starts, before it opens its fault control socket. `links`
        has the arguments of `link`, by peer."""
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
        """Add a rule for responses (see `kraft.wire.reply_policy.rule_from`). Return the rule's number."""
        return int(self._ask(verb="reply", **rule)["rule"])

    def slow_syncs(self, delay_ms: int) -> None:
        """Delay each sync of the node by this time from now on, and end the fault of `fail_syncs`. 0 restores normal
        syncs. See `kraft.runtime.disk_faults` for what this fault can show."""
        self._ask(verb="disk", sync_delay_ms=delay_ms)

    def fail_syncs(self, fails: bool) -> None:
        """Make the node's syncs fail from now on, or restore normal syncs."""
        self._ask(verb="disk", fail_syncs=fails)

    def syncs_broken(self) -> tuple[int, int]:
        """Return the number of syncs that were delayed, and of syncs that were made to fail, since the node started."""
        found = self._ask(verb="list")["disk"]
        return int(found["syncs_delayed"]), int(found["syncs_failed"])

    def wall_ms(self) -> int:
        """Return the time of the node's clock, in ms since 1970."""
        return int(self._ask(verb="clock")["wall_ms"])

    def clear(self, rule: int | None = None) -> None:
        """Remove one rule, or all faults of the node."""
        self._ask(verb="clear", **({} if rule is None else {"rule": rule}))

    def applied(self, rule: int) -> int:
        """Return how often a rule was applied. This also works for a rule that has expired or was removed."""
        return int(self._ask(verb="list")["applied"].get(str(rule), 0))

    def listed(self) -> dict[str, Any]:
        """Return the active faults as a mapping with the keys `links`, `qualities` and `rules`."""
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
