"""Schedules for our client: an idempotent producer against a model broker, and a consumer's positions and metadata."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import trio

from kraft.client.cluster import Cluster
from kraft.client.core.assigned import Assignment
from kraft.client.core.configs import parse_bootstrap
from kraft.client.core.fetched import FetchPosition
from kraft.client.core.records import DeliveryFailed
from kraft.sim.world import World
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records.control_records import ControlRecordType
from kraft.wire.reply_policy import ReplyAction
from tests.bugbank.mutation import require
from tests.client.core.test_assigned import A, arrive
from tests.client.core.test_assigned import batch as consumer_batch
from tests.client.core.test_fetched import batch, marker, values_of
from tests.client.core.test_idempotence_against_a_model import STEPS, Play
from tests.stages.clients_in_world import Stage, run
from tests.stages.plane import batch as plain_batch

# the producer


def _judge(play: Play) -> None:
    play.settle()
    log = play.broker.log
    require("T1", len(log) == len(set(log)), "a record is doubled")
    last = -1
    for value, placed in play.sent:
        outcome = placed.outcome
        require("C4", outcome is not None, f"{value!r} was neither delivered nor given up")
        if isinstance(outcome, DeliveryFailed):
            require("C7", not (outcome.certain and value in log), f"{value!r} certainly failed and is in the log")
            continue
        assert outcome is not None
        require("D1", value in log, f"{value!r} was acknowledged and is not in the log")
        place = log.index(value)
        require("C4", outcome.offset in (-1, place), f"{value!r} is at {place}, not {outcome.offset}")
        require("C1", place > last, f"{value!r} is out of order")
        last = place
    require("N3", play.producer.buffered_bytes == 0, "memory is not given back")


def producers(seed: int) -> None:
    """Lose responses, reject batches, break connections and let time pass, in four rounds."""
    draw = random.Random(seed)
    for _ in range(4):
        story = Play()
        for _ in range(draw.randint(10, 120)):
            story.step(draw.choice(STEPS))
        _judge(story)


def an_answer_is_lost_and_the_leader_changes(seed: int) -> None:
    """Lose the response to the first of five batches. The next leader has no state of the producer."""
    story = Play()
    for _ in range(5):
        story.step("add")
        story.step("take")
    story.step("arrive")
    story.step("arrive")
    story.break_connection(arrived=0)
    story.broker.recent.clear()
    _judge_without_state(story)


def _judge_without_state(story: Play) -> None:
    """Let a broker without producer state answer OUT_OF_ORDER_SEQUENCE_NUMBER to a batch that is in the log."""
    story.take()
    batch_sent, _ = story.wire.popleft()
    story.producer.answered(batch_sent, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    _judge(story)


def retries_with_a_queue(seed: int) -> None:
    """Change the leader while one batch is in flight and others wait behind it."""
    story = Play()
    for name in ("add", "take", "add", "refuse: NOT_LEADER_OR_FOLLOWER", "answer"):
        story.step(name)
    _judge(story)


# the consumer


def a_client_dies_before_it_processed_its_records(seed: int) -> None:
    """Fetch records and return them to the application, which dies before it polls again. The records are not
    consumed."""
    made = Assignment()
    made.replace([A])
    made.partitions[A].seek(FetchPosition(0))
    arrive(made, A, consumer_batch(0, 4))
    arrive(made, A, consumer_batch(4, 4))
    done = 0
    for _ in range(3):
        made.mark_consumed()
        committed = {tp: entry.offset for tp, entry in made.consumed().items()}.get(A, 0)
        require("C5", committed <= done, f"{committed} is committed, the application has dealt with {done}")
        taken = made.take(3)
        committed = {tp: entry.offset for tp, entry in made.consumed().items()}.get(A, 0)
        require("C5", committed <= done, f"{committed} is committed, the application has dealt with {done}")
        done += len(taken)


def consumers(seed: int) -> None:
    """Draw fetches, polls and seeks of one partition at random."""
    draw = random.Random(seed)
    made = Assignment()
    made.replace([A])
    made.partitions[A].seek(FetchPosition(0))
    fetched = done = given = 0
    for _ in range(60):
        step = draw.randrange(4)
        if step == 0:
            count = draw.randint(1, 4)
            arrive(made, A, consumer_batch(fetched, count))
            fetched += count
        elif step == 1:
            made.mark_consumed()
            done = given
            for record in made.take(draw.randint(1, 5)):
                require("C2", record.offset == given, f"{record.offset} was given, {given} was next")
                given += 1
        elif step == 2 and not draw.randrange(5):
            fetched = given = done = draw.randint(0, given)
            made.partitions[A].seek(FetchPosition(given))
        committed = {tp: entry.offset for tp, entry in made.consumed().items()}.get(A, 0)
        require("C5", committed <= done, f"{committed} is committed, the application has dealt with {done}")


def a_seek_while_a_fetch_is_on_its_way(seed: int) -> None:
    """Hold a fetch response while the application seeks to the beginning of the partition."""

    async def story(stage: Stage) -> None:
        await stage.create_topic("orders", leader=1)
        for number in range(20):
            await stage.produce("orders", plain_batch(f"{number}"))
        async with stage.consumer() as consumer:
            await consumer.assign([("orders", 0)], at="earliest")
            consumer.seek(("orders", 0), 10)
            stage.fault(api_key=ApiKey.FETCH, action=ReplyAction.DELAY, delay_ms=300, times=1)
            with trio.move_on_after(0.1):
                await consumer.poll()
            consumer.seek(("orders", 0), 0)
            offsets: list[int] = []
            while len(offsets) < 20 and (records := await consumer.poll(timeout_ms=2_000)):
                offsets += [record.offset for record in records]
            require("C2", offsets == list(range(20)), f"after a seek to 0 came {offsets}")

    run(story, seed=seed)


def short_transactions_in_one_fetch(seed: int) -> None:
    """Fetch three transactions of one producer at once. The second one was aborted."""
    data, base = b"", 0
    for value, kind in ((b"a", "COMMIT"), (b"b", "ABORT"), (b"c", "COMMIT")):
        data += batch(base, value, value, producer=7, transactional=True)
        data += marker(base + 2, 7, ControlRecordType[kind])
        base += 3
    found = [value for _, value in values_of(data, read_committed=True, aborted=((7, 3),))]
    require("T6", b"b" not in found, f"an aborted record was given: {found}")
    require("C2", found == [b"a", b"a", b"c", b"c"], f"{found}")


def transactions(seed: int) -> None:
    """Draw short transactions of three producers, all in one fetch."""
    draw = random.Random(seed)
    data, opened = b"", dict[int, int]()
    pending: dict[int, list[bytes]] = {}
    wanted: set[bytes] = set()
    aborted: list[tuple[int, int]] = []
    for base in range(30):
        producer = draw.randint(1, 3)
        if producer in opened and draw.randrange(2):
            kind = draw.choice((ControlRecordType.COMMIT, ControlRecordType.ABORT))
            data += marker(base, producer, kind)
            first, values = opened.pop(producer), pending.pop(producer)
            if kind is ControlRecordType.ABORT:
                aborted.append((producer, first))
            else:
                wanted.update(values)
        else:
            value = b"%d" % base
            data += batch(base, value, producer=producer, transactional=True)
            opened.setdefault(producer, base)
            pending.setdefault(producer, []).append(value)
    for producer, first in opened.items():
        # reading stops at the start of a transaction that is still open at the end of the log
        aborted.append((producer, first))
    found = {value for _, value in values_of(data, read_committed=True, aborted=tuple(aborted))}
    require("T6", found <= wanted, f"aborted or open records were given: {found - wanted}")
    require("C2", found == wanted, f"committed records were left out: {wanted - found}")


# metadata


def _answer(epoch: int, leader: int, topic_id: int) -> Any:
    partition = SimpleNamespace(partition_index=0, leader_id=leader, leader_epoch=epoch)
    topic = SimpleNamespace(
        name="orders", error_code=0, topic_id=UUID(int=topic_id), partitions=[partition], is_internal=False
    )
    brokers = [SimpleNamespace(node_id=one, host=f"b{one}", port=9092, rack=None) for one in (1, 2, 3)]
    return SimpleNamespace(cluster_id="one", controller_id=1, brokers=brokers, topics=[topic])


def _learning(seed: int, *answers: tuple[int, int, int]) -> None:
    """Return responses of several brokers as (epoch, leader, topic id); some are stale."""

    async def main(world: World) -> None:
        cluster = Cluster(parse_bootstrap("b1:9092"), world.node("client"), client_id="client")
        newest = dict[int, tuple[int, int]]()
        for epoch, leader, topic_id in answers:
            cluster._learn(_answer(epoch, leader, topic_id))
            newest[topic_id] = max(newest.get(topic_id, (-1, -1)), (epoch, leader))
            known = cluster.leader(("orders", 0))
            require("C3", known is not None and known.epoch >= newest[topic_id][0], f"{known} after {newest}")
            told = (-1, -1) if known is None else (known.epoch, known.node_id)
            require("L7", told == newest[topic_id], f"topic {topic_id} is led by {newest[topic_id]}, believed {told}")
        await trio.lowlevel.checkpoint()
        cluster.close()

    World(seed).run(main)


def a_paused_broker_reports_old_metadata(seed: int) -> None:
    _learning(seed, (5, 2, 1), (3, 1, 1), (6, 3, 1))


def a_topic_is_created_again(seed: int) -> None:
    _learning(seed, (5, 2, 1), (0, 1, 2), (1, 3, 2))


def metadata(seed: int) -> None:
    """Let epochs rise, some responses be stale, and sometimes the topic be recreated."""
    draw = random.Random(seed)
    answers, topic_id, epoch = [], 1, 0
    leaders = {0: 1}
    for _ in range(20):
        step = draw.randrange(6)
        if step == 0:
            topic_id, epoch, leaders = topic_id + 1, 0, {0: draw.randint(1, 3)}
        elif step < 4:
            epoch += 1
            leaders[epoch] = draw.randint(1, 3)
        old = max(0, epoch - draw.choice((0, 0, 1, 3)))
        answers.append((old, leaders[old], topic_id))
    _learning(seed, *answers)
