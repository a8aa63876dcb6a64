"""Requests to the leaders of many partitions, of which some are not available. Each partition has its own outcome, and
none delays another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from kraft.client import KafkaError
from kraft.client.admin import LATEST, Admin, FoundOffset, NewTopic
from kraft.client.admin.each_leader import EachLeader
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import VersionMismatch
from kraft.seam import WireError
from kraft.sim.cluster.shape import host_name
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import rule_from
from tests.stages.admin_client import Stage, play

FIRST, SECOND = ("t", 0), ("t", 1)
BOTH = {FIRST: LATEST, SECOND: LATEST}


async def make_one_partition_on_each(stage: Stage) -> None:
    await stage.admin.topics.create(NewTopic("t", assignment={0: [1], 1: [2]}))
    await stage.produce("t", {1: 0, 2: 1}, partition=1)


def set_rule(stage: Stage, **rule: Any) -> None:
    for node in (1, 2):
        stage.cluster.replies[node].add(rule_from({"api": "ListOffsets", "action": "error", **rule}))


def outcomes_of(outcomes: dict[tuple[str, int], FoundOffset | KafkaError]) -> dict[tuple[str, int], int | ErrorCode]:
    """Return the outcomes, with offsets as numbers and errors as error codes."""
    return {tp: one.code if isinstance(one, KafkaError) else one.offset for tp, one in outcomes.items()}


def test_offsets_of_each_partition_are_returned_when_all_leaders_answer() -> None:
    async def work(stage: Stage) -> None:
        await make_one_partition_on_each(stage)
        each = await stage.admin.partitions.offsets_of_each(BOTH)
        assert each == await stage.admin.partitions.offsets(BOTH)
        assert outcomes_of(each) == {FIRST: 0, SECOND: 2}
        assert await stage.admin.partitions.offsets_of_each({}) == {}

    play(work)


def test_a_partition_without_a_leader_gets_an_error_and_the_others_get_offsets() -> None:
    async def work(stage: Stage) -> None:
        await make_one_partition_on_each(stage)
        stage.cluster.crash(1, lose_power=False, is_noticed=True)
        assert await stage.cluster.wait_until(lambda: is_without_leader(stage), 20_000)
        each = await stage.admin.partitions.offsets_of_each(BOTH)
        assert outcomes_of(each) == {FIRST: ErrorCode.LEADER_NOT_AVAILABLE, SECOND: 2}
        assert "t-0 has no leader now" in str(each[FIRST])
        with pytest.raises(KafkaError, match="t-0 has no leader now"):
            await stage.admin.partitions.offsets(BOTH)

    play(work, timeout_ms=3_000)


def is_without_leader(stage: Stage) -> bool:
    topic = stage.cluster.image.topics.get("t")
    return topic is not None and topic.partition(0).leader < 0


def test_partitions_of_a_hanging_leader_get_an_error_and_the_others_get_offsets() -> None:
    async def work(stage: Stage) -> None:
        await make_one_partition_on_each(stage)
        stage.cluster.world.pause(host_name(1))
        each = await stage.admin.partitions.offsets_of_each(BOTH)
        stage.cluster.world.resume(host_name(1))
        assert outcomes_of(each) == {FIRST: ErrorCode.NETWORK_EXCEPTION, SECOND: 2}
        assert "t-0: its leader, broker 1, does not answer" in str(each[FIRST])

    play(work, timeout_ms=3_000)


def test_several_hanging_leaders_cost_no_more_time_than_one() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={at: [at + 1] for at in range(5)}))
        for broker in (1, 2, 3, 4):
            stage.cluster.world.pause(host_name(broker))
        begin_ms = stage.cluster.world.now_ns // 1_000_000
        each = await stage.admin.partitions.offsets_of_each({("t", at): LATEST for at in range(5)})
        took_ms = stage.cluster.world.now_ns // 1_000_000 - begin_ms
        for broker in (1, 2, 3, 4):
            stage.cluster.world.resume(host_name(broker))
        hanging = {("t", at): ErrorCode.NETWORK_EXCEPTION for at in range(4)}
        assert outcomes_of(each) == {**hanging, ("t", 4): 0}
        assert took_ms <= 4_000, "the timeout, and the time of one request"

    play(work, brokers=5, timeout_ms=3_000)


Answers = Mapping[tuple[str, int], tuple[int, int]]


def ask_where_broker_1(answers: Answers | Exception) -> Any:
    """Send requests to leaders of which only broker 1 gives these wrong answers, or raises this error."""

    async def ask(node_id: int, share: Mapping[tuple[str, int], int]) -> Answers:
        if node_id != 1:
            return dict.fromkeys(share, (ErrorCode.NONE, 7))
        if isinstance(answers, Exception):
            raise answers
        return answers

    return ask


@pytest.mark.parametrize(
    ("answers", "code", "text"),
    [
        (
            VersionMismatch("too old"),
            ErrorCode.UNSUPPORTED_VERSION,
            r"t-0: its leader, broker 1, does not support .*too old",
        ),
        (WireError("odd"), ErrorCode.UNKNOWN_SERVER_ERROR, r"t-0: its leader, broker 1, sent an answer .*odd"),
        ({}, ErrorCode.UNKNOWN_SERVER_ERROR, "t-0: its leader, broker 1, left it out"),
    ],
)
def test_an_invalid_response_of_one_leader_is_an_error_of_its_partitions_only(
    answers: Answers | Exception, code: ErrorCode, text: str
) -> None:
    async def work(stage: Stage) -> None:
        await make_one_partition_on_each(stage)
        each = await EachLeader(stage.admin.partitions._router, BOTH, ask_where_broker_1(answers)).outcomes()
        assert each[SECOND] == 7
        assert isinstance(each[FIRST], KafkaError)
        assert each[FIRST].code is code
        assert re.search(text, str(each[FIRST]))

    play(work, timeout_ms=3_000)


def test_an_unreachable_leader_is_an_error_of_its_partitions_only() -> None:
    async def ask(node_id: int, share: Mapping[tuple[str, int], int]) -> Answers:
        if node_id == 1:
            await trio.sleep_forever()
        return dict.fromkeys(share, (ErrorCode.NONE, 7))

    async def work(stage: Stage) -> None:
        await make_one_partition_on_each(stage)
        each = await EachLeader(stage.admin.partitions._router, BOTH, ask).outcomes()
        assert each[SECOND] == 7
        assert "t-0: its leader, broker 1, does not answer (within 1000 ms)" in str(each[FIRST])

    play(work, timeout_ms=3_000)


def test_offsets_received_before_all_brokers_crashed_are_returned() -> None:
    async def work(stage: Stage) -> None:
        async def ask(node_id: int, share: Mapping[tuple[str, int], int]) -> Answers:
            if node_id == 1:
                for broker in (1, 2):
                    stage.cluster.crash(broker, lose_power=False, is_noticed=True)
            return dict.fromkeys(share, (ErrorCode.LEADER_NOT_AVAILABLE if node_id == 1 else ErrorCode.NONE, 7))

        await make_one_partition_on_each(stage)
        seam = stage.cluster.world.node("impatient")
        async with Admin(bootstrap_servers=stage.bootstrap_servers, refused_ms=500, seam=seam) as admin:
            each = await EachLeader(admin.partitions._router, BOTH, ask).outcomes()
        assert each[SECOND] == 7
        assert "t-0: leader not available" in str(each[FIRST])

    play(work)


def test_offsets_of_each_partition_with_a_too_large_time_raise_value_error() -> None:
    async def work(stage: Stage) -> None:
        await make_one_partition_on_each(stage)
        with pytest.raises(ValueError, match="a number is too large"):
            await stage.admin.partitions.offsets_of_each({FIRST: 1 << 70, SECOND: 1 << 70})

    play(work)


def test_a_transient_error_of_a_partition_is_retried_by_each_leader() -> None:
    async def work(stage: Stage) -> None:
        await make_one_partition_on_each(stage)
        set_rule(stage, error="NOT_LEADER_OR_FOLLOWER", times=2)
        assert outcomes_of(await stage.admin.partitions.offsets_of_each(BOTH)) == {FIRST: 0, SECOND: 2}

    play(work)


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "TOPIC_AUTHORIZATION_FAILED"])
def test_a_permanent_error_of_a_partition_is_reported_for_that_partition_only(error: str) -> None:
    async def work(stage: Stage) -> None:
        await make_one_partition_on_each(stage)
        set_rule(stage, error=error, topic="t", partition=0)
        assert outcomes_of(await stage.admin.partitions.offsets_of_each(BOTH)) == {FIRST: ErrorCode[error], SECOND: 2}

    play(work, timeout_ms=3_000)


def test_unknown_partitions_get_an_error_at_once_and_existing_partitions_get_their_offsets() -> None:
    async def work(stage: Stage) -> None:
        await make_one_partition_on_each(stage)
        begin_ms = stage.cluster.world.now_ns // 1_000_000
        each = await stage.admin.partitions.offsets_of_each({**BOTH, ("t", 7): LATEST, ("no", 0): LATEST})
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert outcomes_of(each) == {FIRST: 0, SECOND: 2, ("t", 7): unknown, ("no", 0): unknown}
        assert stage.cluster.world.now_ns // 1_000_000 - begin_ms < 1_000

    play(work)


def test_offsets_of_each_partition_raise_cluster_unreachable_if_no_broker_answers() -> None:
    async def work(stage: Stage) -> None:
        await make_one_partition_on_each(stage)
        for node in (1, 2):
            stage.cluster.crash(node, lose_power=True, is_noticed=True)
        with pytest.raises(ClusterUnreachable):
            await stage.admin.partitions.offsets_of_each(BOTH)

    play(work, timeout_ms=3_000)
