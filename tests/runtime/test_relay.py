"""Degraded links of the real network, on existing connections and on new ones."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from kraft.runtime import LinkPolicies, open_seam
from kraft.runtime.fault_control import FaultControl
from kraft.seam import (
    Address,
    Binding,
    CloseReason,
    DialFailed,
    DialOutcome,
    LinkPolicy,
    LinkQuality,
    Peer,
    Seam,
)
from kraft.wire.reply_policy import ReplyPolicy
from tests.stages.recorder import Recorder, echo

WELL = LinkQuality()
NEVER = LinkQuality(latency_ms=100_000)
BAD, OTHER = 2, 3
"""The peer with the degraded link, and a peer with a perfect link; both names lead to the same listener."""


@dataclass
class Links:
    seam: Seam
    links: LinkPolicies
    address: Address
    far: list[Recorder] = field(default_factory=list)

    async def dial(self, node: int = BAD, *, timeout_ms: int = 10_000) -> Recorder:
        return await self.seam.network.dial(Peer(node, "PLAINTEXT", self.address), Recorder, timeout_ms=timeout_ms)

    def fare(self, sends: LinkQuality = WELL, receives: LinkQuality = WELL) -> None:
        self.links.set_qualities(BAD, sends, receives)
        self.links.set_all(BAD, LinkPolicy.OPEN)


@asynccontextmanager
async def opened() -> AsyncIterator[Links]:
    policies = LinkPolicies()
    async with open_seam(node_name="node", links=policies) as seam:

        def accept(transport: Any) -> Recorder:
            connection = Recorder(transport)
            connection.on_heard = echo
            links.far.append(connection)
            return connection

        links = Links(seam, policies, Address("127.0.0.1", 0))
        links.address = seam.network.serve(Binding("PLAINTEXT", links.address), accept).address
        yield links


async def exchange(connection: Recorder, times: int = 50) -> None:
    """Exchange this many requests and responses. This takes so long that all bytes that are not delayed have arrived
    afterwards."""
    for _ in range(times):
        count = len(connection.heard) + 1
        connection.say(b"?")
        await connection.wait_heard(count)


@pytest.mark.parametrize("quality", [NEVER, LinkQuality(is_cut=True)], ids=["late", "cut"])
async def test_bytes_sent_on_a_cut_link_arrive_in_order_once_it_recovers(quality: LinkQuality) -> None:
    async with opened() as links:
        near, other = await links.dial(), await links.dial(OTHER)
        await exchange(near, 1)
        links.fare(sends=quality)
        near.say(b"abc")
        near.say(b"defg")
        await exchange(other)
        assert links.far[0].heard == b"?"
        links.fare()
        assert await near.wait_heard(8) == b"?abcdefg"
        await exchange(near)


async def test_link_cut_in_one_direction_passes_bytes_in_the_other_direction() -> None:
    async with opened() as links:
        near, other = await links.dial(), await links.dial(OTHER)
        await exchange(near, 1)
        links.fare(receives=LinkQuality(is_cut=True))
        near.say(b"heard")
        await links.far[0].wait_heard(6)
        await exchange(other)
        assert near.heard == b"?"
        links.links.clear()
        assert await near.wait_heard(6) == b"?heard"


@pytest.mark.parametrize("way", ["sends", "receives"])
async def test_dial_times_out_while_either_direction_of_the_link_is_cut(way: str) -> None:
    async with opened() as links:
        links.fare(**{way: LinkQuality(is_cut=True)})
        with pytest.raises(DialFailed) as failed:
            await links.dial(timeout_ms=50)
        assert failed.value.outcome is DialOutcome.TIMED_OUT
        assert not links.far
        links.fare(sends=NEVER)
        with pytest.raises(DialFailed):
            await links.dial(timeout_ms=50)
        links.fare()
        await exchange(await links.dial())


async def test_slow_link_delivers_part_of_the_bytes_and_the_remainder_once_it_is_fast_again() -> None:
    async with opened() as links:
        near, other = await links.dial(), await links.dial(OTHER)
        await exchange(near, 1)
        links.fare(sends=LinkQuality(bytes_per_second=1))
        near.say(bytes(299_999))
        await links.far[0].wait_heard(2)
        await exchange(other)
        assert len(links.far[0].heard) < 100
        links.fare()
        assert await near.wait_heard(300_000) == b"?" + bytes(299_999)


async def test_latency_and_jitter_keep_the_order_of_bytes() -> None:
    async with opened() as links:
        near = await links.dial()
        links.fare(LinkQuality(latency_ms=1, jitter_ms=3), LinkQuality(jitter_ms=3))
        text = bytes(range(200))
        for number in range(200):
            near.say(text[number : number + 1])
            await trio.lowlevel.checkpoint()
        assert await near.wait_heard(200) == text


async def test_each_connection_ends_after_the_maximum_bytes_of_its_link() -> None:
    async with opened() as links:
        old = await links.dial()
        await exchange(old, 1)
        links.fare(sends=LinkQuality(bytes_max=10))
        for heard, near in ((1 + 10, old), (10, await links.dial())):
            near.say(bytes(7))
            near.say(bytes(7))
            await near.wait_closed()
            far = links.far[old is not near]
            await far.wait_closed()
            assert len(far.heard) == heard
        links.fare()
        await exchange(await links.dial())


async def test_a_relayed_connection_that_ends_on_one_side_ends_on_the_other() -> None:
    async with opened() as links:
        links.fare(sends=LinkQuality(latency_ms=1))
        for side in (0, 1):
            near = await links.dial()
            await exchange(near, 1)
            ends = near, links.far[-1]
            ends[side].say(b"last")
            ends[side].transport.close(flush=True)
            await ends[1 - side].wait_closed()
            assert ends[1 - side].heard.endswith(b"last")


async def test_link_policies_apply_to_degraded_links_too() -> None:
    async with opened() as links:
        near, other = await links.dial(), await links.dial(OTHER)
        links.fare(sends=LinkQuality(latency_ms=1))
        await exchange(near, 1)
        await exchange(other, 1)
        links.links.set_all(BAD, LinkPolicy.HANG)
        near.say(b"held")
        await exchange(other)
        assert links.far[0].heard == b"?"
        links.links.set_all(BAD, LinkPolicy.OPEN)
        await near.wait_heard(5)
        links.links.set_all(BAD, LinkPolicy.RESET)
        assert await near.wait_closed() is CloseReason.RESET
        assert await links.far[0].wait_closed() is CloseReason.RESET


@pytest.mark.parametrize("fields", [{"latency_ms": 50, "jitter_ms": 5}, {"is_cut": True}])
def test_fault_control_sets_and_lists_link_qualities(fields: dict[str, Any]) -> None:
    faults = FaultControl(LinkPolicies(), ReplyPolicy())
    faults._link({"node": 2, "policy": "open", "receives": fields})
    assert faults.links.qualities((2, "ANY")) == (WELL, LinkQuality(**fields))
    assert faults.links.qualities((None, "ANY")) == (WELL, WELL)
    assert faults._list({})["qualities"] == [{"node": 2, "sends": {}, "receives": fields}]
    faults._link({"node": 2, "policy": "open"})
    assert faults._list({})["qualities"] == []


@pytest.mark.parametrize("wrong", [1, {"latency": 5}, {"latency_ms": True}, {"is_cut": 1}, {"bytes_max": -1}])
def test_fault_control_refuses_invalid_link_qualities(wrong: object) -> None:
    faults = FaultControl(LinkPolicies(), ReplyPolicy())
    answer = faults.handle(json.dumps({"verb": "link", "node": 2, "policy": "hang", "sends": wrong}).encode())
    assert "a link's quality has" in answer["error"]
    assert not faults.links.listed
