"""The fault control socket: accepted and refused requests, and their effect on dialled links."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kraft.runtime import open_seam
from kraft.runtime.fault_control import FaultControl
from kraft.runtime.links import LinkPolicies
from kraft.seam import Address, Binding, CloseReason, DialFailed, DialOutcome, LinkPolicy, Peer
from kraft.wire.reply_policy import ReplyPolicy
from tests.stages.recorder import Recorder, echo


class Control:
    """A fault control socket that is served, and one connection to it."""

    def __init__(self, faults: FaultControl, stream: trio.SocketStream) -> None:
        self.faults = faults
        self.stream = stream

    async def ask(self, **request: Any) -> Any:
        return await self.ask_text(json.dumps(request))

    async def ask_text(self, text: str) -> Any:
        await self.stream.send_all(text.encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            answer += await self.stream.receive_some()
        return json.loads(answer)


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Control]:
    faults = FaultControl(LinkPolicies(), ReplyPolicy())
    async with trio.open_nursery() as nursery:
        await nursery.start(faults.run, str(path))
        async with await trio.open_unix_socket(str(path)) as stream:
            yield Control(faults, stream)
        nursery.cancel_scope.cancel()


async def test_fault_control_adds_lists_and_clears_a_reply_rule(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as control:
        assert await control.ask(verb="reply", api="Produce", action="drop", times=2) == {"ok": True, "rule": 1}
        assert [*control.faults.replies.rules] == [1]
        listed = await control.ask(verb="list")
        assert listed["rules"] == [{"rule": 1, "applied": 0, "action": "drop", "api": "Produce", "times": 2}]
        assert await control.ask(verb="clear", rule=1) == {"ok": True}
        assert (await control.ask(verb="list"))["rules"] == []


async def test_fault_control_logs_the_begin_and_end_of_faults(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as control:
        with capture_logs() as lines:
            await control.ask(verb="link", node=2, policy="hang")
            for _ in range(2):
                await control.ask(verb="reply", api="Produce", action="drop", times=2)
            await control.ask(verb="clear", rule=1)
            await control.ask(verb="clear", rule=1)  # it no longer exists
            await control.ask(verb="clear")
    rule = {"log_level": "info", "event": "reply rule", "action": "drop", "api": "Produce", "times": 2}
    assert lines == [
        {"log_level": "info", "event": "link policy", "node": 2, "listener": None, "policy": "hang"},
        {**rule, "rule": 1},
        {**rule, "rule": 2},
        {"log_level": "info", "event": "reply rule is cleared", "rule": 1},
        {"log_level": "info", "event": "all link policies, reply rules and disk faults are cleared"},
    ]


async def test_fault_control_carries_out_requests_of_its_start_file_before_those_of_clients(tmp_path: Path) -> None:
    left = tmp_path / "s.first"
    left.write_text('{"verb": "link", "node": 2, "policy": "hang"}\nno JSON\n')
    with capture_logs() as lines:
        async with serving(tmp_path / "s") as control:
            assert control.faults.links.policy((2, "ANY")) is LinkPolicy.HANG
    assert [line["log_level"] for line in lines] == ["info", "warning"]
    assert not left.exists()


async def test_fault_control_sets_and_clears_policies_of_links_to_a_node_or_one_listener(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as control:
        await control.ask(verb="link", node=2, policy="hang")
        await control.ask(verb="link", node=3, listener="CONTROLLER", policy="reset")
        links = control.faults.links
        assert links.policy((2, "ANY")) is LinkPolicy.HANG
        assert links.policy((3, "CONTROLLER")) is LinkPolicy.RESET
        assert links.policy((3, "PLAINTEXT")) is LinkPolicy.OPEN
        assert (await control.ask(verb="list"))["links"] == [
            {"node": 2, "listener": None, "policy": "hang"},
            {"node": 3, "listener": "CONTROLLER", "policy": "reset"},
        ]
        await control.ask(verb="clear")
        assert links.policy((2, "ANY")) is LinkPolicy.OPEN
        assert links.listed == []


async def test_link_policy_for_all_listeners_replaces_policies_of_single_listeners(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as control:
        await control.ask(verb="link", node=2, listener="PLAINTEXT", policy="reset")
        await control.ask(verb="link", node=2, policy="open")
        assert control.faults.links.policy((2, "PLAINTEXT")) is LinkPolicy.OPEN


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "Expecting"),
        ("[]", "an object with a verb"),
        ('{"verb": "explode"}', "an object with a verb"),
        ('{"verb": "link", "node": "2", "policy": "hang"}', "a node's id"),
        ('{"verb": "link", "node": 2, "policy": "slow"}', "no link policy"),
        ('{"verb": "reply", "action": "explode"}', "no action"),
        ('{"verb": "clear", "rule": 7}', "no rule 7"),
    ],
)
async def test_fault_control_refuses_invalid_requests_and_keeps_the_connection(
    tmp_path: Path, text: str, says: str
) -> None:
    async with serving(tmp_path / "s") as control:
        answer = await control.ask_text(text)
        assert not answer["ok"]
        assert says in answer["error"]
        assert (await control.ask(verb="list"))["ok"]


async def test_fault_control_line_without_an_end_closes_only_its_connection(tmp_path: Path) -> None:
    async with serving(tmp_path / "s") as control:
        async with await trio.open_unix_socket(str(tmp_path / "s")) as other:
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await other.send_all(b"x" * 65536)
        assert (await control.ask(verb="list"))["ok"]


async def test_the_fault_control_socket_is_private_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(path):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert not path.exists()


async def test_fault_control_replaces_an_old_socket_but_no_other_file(tmp_path: Path) -> None:
    import socket

    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    async with serving(path) as control:
        assert (await control.ask(verb="list"))["ok"]
    path.write_text("precious")
    with pytest.RaisesGroup(pytest.RaisesExc(FileExistsError, match="another kind"), flatten_subgroups=True):
        async with serving(path):
            raise AssertionError("it serves")
    assert path.read_text() == "precious"


async def test_link_policies_reset_or_hang_existing_connections_and_new_dials() -> None:
    links = LinkPolicies()
    async with open_seam(node_name="node", links=links) as seam:

        def accept(transport: Any) -> Recorder:
            connection = Recorder(transport)
            connection.on_heard = echo
            return connection

        bound = seam.network.serve(Binding("PLAINTEXT", Address("127.0.0.1", 0)), accept)
        peer = Peer(2, "PLAINTEXT", bound.address)
        near = await seam.network.dial(peer, Recorder, timeout_ms=10_000)
        near.say(b"?")
        await near.wait_heard(1)
        links.set_all(3, LinkPolicy.RESET)
        assert not near.reasons
        links.set_all(2, LinkPolicy.RESET)
        assert await near.wait_closed() is CloseReason.RESET
        with pytest.raises(DialFailed) as failed:
            await seam.network.dial(peer, Recorder, timeout_ms=10_000)
        assert failed.value.outcome is DialOutcome.RESET
        links.clear()
        again = await seam.network.dial(peer, Recorder, timeout_ms=10_000)
        again.say(b"!")
        assert await again.wait_heard(1) == b"!"
