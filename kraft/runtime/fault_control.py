"""Fault control: a Unix socket for deliberate faults in the links, responses and syncs of a running node.

One JSON object per line, answered in order by one JSON object: `{"ok": true, …}` or `{"ok": false, "error": TEXT}`.

    {"verb": "link", "node": 2, "policy": "hang"}           open, refuse, hang, reset; "listener" limits it to one
    {"verb": "link", "node": 2, "policy": "open", "sends": {"latency_ms": 50}, "receives": {"is_cut": true}}
                                    quality of all links to that node: the fields of LinkQuality; perfect if absent
    {"verb": "reply", "api": "Produce", "action": "error", "error": "NOT_LEADER_OR_FOLLOWER", "times": 3}
    {"verb": "disk", "sync_delay_ms": 800}                  each sync is delayed by this; 0 ms if absent
    {"verb": "disk", "fail_syncs": true}                    syncs fail (see `disk_faults`); false if absent
    {"verb": "clock"}                                       the node's clocks: "wall_ms", "monotonic_ms"
    {"verb": "clear"}                                       removes all faults; "rule": NUMBER removes one rule
    {"verb": "list"}

The answers to `disk` and `list` count the delayed and failed syncs.

A file with the socket's name and the suffix `.first` may hold requests. The node carries them out when it opens the
socket, before anything else.

A process that can open the socket can break the node. The socket is therefore accessible only to its owner (mode 0600),
and exists only if the node was started with one. Source: docs/decisions/09-faults-on-purpose.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from types import MappingProxyType
from typing import Any

import structlog
import trio

from kraft.runtime.clock import RealClock
from kraft.runtime.disk_faults import SYNC_DELAY_MS_MAX, DiskFaults
from kraft.runtime.links import LinkPolicies
from kraft.seam import LinkPolicy, LinkQuality
from kraft.wire.reply_policy import BadRule, ReplyPolicy, rule_fields, rule_from

log = structlog.get_logger("kraft.faults")

LINE_BYTES_MAX = 65_536
BACKLOG = 16
FIRST_SUFFIX = ".first"
POLICIES = MappingProxyType({policy.name.lower(): policy for policy in LinkPolicy})

Answer = dict[str, Any]


class FaultControl:
    """The fault control of one node. `handle` carries out one request on the event loop; `run` serves requests on a
    socket."""

    def __init__(self, links: LinkPolicies, replies: ReplyPolicy, disk: DiskFaults | None = None) -> None:
        self.links = links
        self.replies = replies
        self.disk = disk or DiskFaults()
        self._clock = RealClock()
        self._verbs: Mapping[str, Callable[[Answer], Answer]] = {
            "link": self._link,
            "reply": self._reply,
            "disk": self._disk,
            "clock": self._report_clocks,
            "clear": self._clear,
            "list": self._list,
        }

    def handle(self, line: bytes) -> Answer:
        """Carry out one line and return the answer; a failure is an answer too."""
        try:
            request = json.loads(line)
            verb = self._verbs.get(request.pop("verb", None)) if isinstance(request, dict) else None
            if verb is None:
                raise BadRule(f"a request is an object with a verb: {', '.join(self._verbs)}")
            return {"ok": True, **verb(request)}
        except ValueError as problem:  # BadRule, and invalid JSON
            return {"ok": False, "error": str(problem)}

    def _link(self, request: Answer) -> Answer:
        node_id, listener, name = request.get("node"), request.get("listener"), request.get("policy")
        if not isinstance(node_id, int):
            raise BadRule(f"node is a node's id, not {node_id!r}")
        policy = POLICIES.get(str(name))
        if policy is None:
            raise BadRule(f"{name!r} is no link policy; there are {', '.join(POLICIES)}")
        sends, receives = _quality(request.get("sends", {})), _quality(request.get("receives", {}))
        if listener is None:
            self.links.set_qualities(node_id, sends, receives)
            self.links.set_all(node_id, policy)
        else:
            self.links.set(node_id, str(listener), policy)
        ways = {way: _changed(quality) for way, quality in (("sends", sends), ("receives", receives))}
        changed_ways = {way: changed for way, changed in ways.items() if changed}
        log.info("link policy", node=node_id, listener=listener, policy=name, **changed_ways)
        return {}

    def _reply(self, request: Answer) -> Answer:
        rule = rule_from(request)
        number = self.replies.add(rule)
        log.info("reply rule", rule=number, **rule_fields(rule))
        return {"rule": number}

    def _disk(self, request: Answer) -> Answer:
        delay_ms, fails = request.get("sync_delay_ms", 0), request.get("fail_syncs", False)
        if type(delay_ms) is not int or not 0 <= delay_ms <= SYNC_DELAY_MS_MAX or type(fails) is not bool:
            raise BadRule(f"sync_delay_ms is from 0 to {SYNC_DELAY_MS_MAX}, fail_syncs true or false: {request!r}")
        self.disk.set(sync_delay_ms=delay_ms, fail_syncs=fails)
        log.info("disk faults", sync_delay_ms=delay_ms, fail_syncs=fails)
        return self.disk.describe()

    def _report_clocks(self, request: Answer) -> Answer:
        return {"wall_ms": self._clock.wall_ms(), "monotonic_ms": self._clock.monotonic_ms()}

    def _clear(self, request: Answer) -> Answer:
        number = request.get("rule")
        if number is None:
            self.replies.clear()
            self.links.clear()
            self.disk.set()
            log.info("all link policies, reply rules and disk faults are cleared")
        elif not self.replies.remove(number):
            raise BadRule(f"there is no rule {number}; it was removed, or is used up")
        else:
            log.info("reply rule is cleared", rule=number)
        return {}

    def _list(self, request: Answer) -> Answer:
        links: list[Answer] = [
            {"node": node_id, "listener": listener, "policy": policy.name.lower()}
            for node_id, listener, policy in self.links.listed
        ]
        qualities = [
            {"node": node_id, "sends": _changed(sends), "receives": _changed(receives)}
            for node_id, (sends, receives) in self.links.degraded.items()
        ]
        rules = [
            {"rule": number, "applied": self.replies.applied[number], **rule_fields(rule)}
            for number, rule in self.replies.rules.items()
        ]
        return {
            "links": links,
            "qualities": qualities,
            "rules": rules,
            "applied": self.replies.applied,
            "disk": self.disk.describe(),
        }

    async def run(self, path: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve at `path` until cancelled. A socket that remains from an earlier process is replaced. Raises
        OSError."""
        listening = _listen(path)
        try:
            self._carry_out_first(path + FIRST_SUFFIX)
            async with trio.open_nursery() as nursery:
                task_status.started()
                while True:
                    stream, _ = await listening.accept()
                    nursery.start_soon(self._serve, trio.SocketStream(stream))
        finally:
            listening.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _carry_out_first(self, path: str) -> None:
        """Carry out the requests of the file, after the socket is open: a client that finds the socket closed writes
        the file, and so no request is missed."""
        try:
            with open(path, "rb") as file:
                lines = file.read().splitlines()
            os.unlink(path)
        except FileNotFoundError:
            return
        for line in lines:
            answer = self.handle(line)
            if not answer["ok"]:
                log.warning("a request of the first file failed", error=answer["error"])

    async def _serve(self, stream: trio.SocketStream) -> None:
        """Serve one client, line by line."""
        text = b""
        with contextlib.suppress(trio.BrokenResourceError):
            async with stream:
                async for chunk in stream:
                    *lines, text = (text + chunk).split(b"\n")
                    if len(text) > LINE_BYTES_MAX:
                        return
                    for line in lines:
                        await stream.send_all(json.dumps(self.handle(line)).encode() + b"\n")


def _quality(given: Any) -> LinkQuality:
    """Parse a link's quality. Raises BadRule if the fields are not those of LinkQuality."""
    due = {item.name: type(item.default) for item in fields(LinkQuality)}
    if not isinstance(given, dict) or any(type(value) is not due.get(name) for name, value in given.items()):
        raise BadRule(f"a link's quality has {', '.join(due)}, numbers but the last, not {given!r}")
    if any(value < 0 for value in given.values()):
        raise BadRule(f"a link's quality has no number below 0: {given!r}")
    return LinkQuality(**given)


def _changed(quality: LinkQuality) -> Answer:
    return {name: value for name, value in asdict(quality).items() if value}


def _listen(path: str) -> trio.socket.SocketType:
    """Open a listening Unix socket that only this user can open."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileExistsError(f"the fault control socket {path} is a file of another kind; choose another path")
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listening.bind(path)
    except OSError as problem:
        listening.close()
        raise OSError(f"cannot open the fault control socket {path}: {problem.strerror or problem}") from None
    finally:
        os.umask(mask)
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return trio.socket.from_stdlib_socket(listening)
