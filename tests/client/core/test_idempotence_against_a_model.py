"""An idempotent producer against a model broker that follows Kafka's rules, over a network that loses requests and
responses.

The model broker has one partition. It keeps a log and, for each producer id, the epoch and the last batches. From a
producer of which it has no state, it accepts any first sequence number (KIP-360). Requests arrive in order over a
connection that may break at any time and lose the requests that are in flight.

In every run, an acknowledged record is in the log once, at its offset and in send order. A record whose failure is
reported as certain is not in the log.
"""

from __future__ import annotations

from collections import deque

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraft.client.core.accumulator import Accumulator, AccumulatorSettings
from kraft.client.core.batch import OutgoingBatch, ProducerIdentity, RecordInBatch, record_bytes_max
from kraft.client.core.records import DeliveryFailed
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import decode_batch, read_header

TP = ("orders", 0)
REMEMBERED = 5
STEPS = [
    *["add"] * 6,
    *["take"] * 5,
    *["arrive"] * 4,
    *["answer"] * 4,
    "break",
    "break too late",
    "refuse: INVALID_RECORD",
    "refuse: NOT_ENOUGH_REPLICAS",
    "refuse: MESSAGE_TOO_LARGE",
    "refuse: NOT_LEADER_OR_FOLLOWER",
    "refuse: UNKNOWN_SERVER_ERROR",
    "append and time out",
    "time passes",
]


class ModelBroker:
    def __init__(self) -> None:
        self.log: list[bytes | None] = []
        self.epochs: dict[int, int] = {}
        self.recent: dict[int, deque[tuple[int, int, int]]] = {}

    def produce(self, data: bytes) -> tuple[ErrorCode, int]:
        header = read_header(data)
        values = [record.value for record in decode_batch(data)]
        producer, sequence = header.producer_id, header.base_sequence
        known = self.epochs.get(producer, -1)
        if header.producer_epoch < known:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        recent = self.recent.setdefault(producer, deque(maxlen=REMEMBERED))
        if header.producer_epoch > known:
            if sequence != 0 and known >= 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.epochs[producer] = header.producer_epoch
            recent.clear()
        for first, count, offset in recent:
            if (first, count) == (sequence, len(values)):
                return ErrorCode.NONE, offset
        due = recent[-1][0] + recent[-1][1] if recent else sequence
        if sequence < due:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1
        if sequence > due:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        recent.append((sequence, len(values), len(self.log)))
        self.log += values
        return ErrorCode.NONE, recent[-1][2]


class Play:
    """The producer, the network and the broker in one run; `now_ms` is the producer's clock."""

    def __init__(self) -> None:
        self.broker = ModelBroker()
        self.producer = Accumulator(
            AccumulatorSettings(batch_bytes=140, delivery_timeout_ms=100), ProducerIdentity(1, 0)
        )
        self.sent: list[tuple[bytes, RecordInBatch]] = []
        self.wire: deque[tuple[OutgoingBatch, bytes]] = deque()
        self.answers: deque[tuple[OutgoingBatch, ErrorCode, int]] = deque()
        self.route = object()
        self.now_ms = 0
        self.ids = 1

    def step(self, name: str) -> None:
        kind, _, code = name.partition(": ")
        if kind == "add":
            value = b"%d" % len(self.sent)
            size = record_bytes_max(None, value, ())
            self.sent.append((value, self.producer.add(TP, None, value, (), 0, size, lambda: self.now_ms)))
        elif kind == "take":
            self.take()
        elif kind == "arrive" and self.wire:
            batch, data = self.wire.popleft()
            self.answers.append((batch, *self.broker.produce(data)))
        elif kind == "refuse" and self.wire:
            self.answers.append((self.wire.popleft()[0], ErrorCode[code], -1))
        elif kind == "append and time out" and self.wire:
            batch, data = self.wire.popleft()
            told, _ = self.broker.produce(data)
            self.answers.append((batch, ErrorCode.REQUEST_TIMED_OUT if told is ErrorCode.NONE else told, -1))
        elif kind == "answer" and self.answers:
            batch, told, offset = self.answers.popleft()
            self.producer.answered(batch, told, base_offset=offset)
        elif kind == "break":
            self.break_connection(arrived=len(self.wire) // 2)
        elif kind == "break too late":
            self.break_connection(arrived=len(self.wire))
        elif kind == "time passes":
            self.now_ms += 40
            self.producer.expire(self.now_ms)

    def take(self) -> None:
        if TP not in self.producer.ready(self.now_ms):
            return
        if self.producer.needs_identity(TP):
            self.ids += 1
            self.producer.identity = ProducerIdentity(self.ids, 0)
        if self.producer.may_send_on(TP, self.route):
            self.wire.append(self.producer.take(TP, self.route))

    def break_connection(self, arrived: int) -> None:
        """Deliver the first `arrived` requests in flight, then break the connection, so that no response arrives."""
        lost = [batch for batch, _, _ in self.answers] + [batch for batch, _ in self.wire]
        for _, data in list(self.wire)[:arrived]:
            self.broker.produce(data)
        self.answers.clear()
        self.wire.clear()
        self.route = object()
        for batch in lost:
            self.producer.answered(batch, ErrorCode.NETWORK_EXCEPTION)

    def settle(self) -> None:
        """End the faults: deliver everything that is pending."""
        for _ in range(4 * len(self.sent) + 10):
            for name in ("take", "arrive", "answer"):
                self.step(name)


DOUBTFUL_BEHIND_AN_EXPIRED_ONE = [
    *["add", "take", "time passes", "add", "take"],
    *["break too late", "time passes", "time passes"],
]

REFUSED_BY_A_BROKER_THAT_TAKES_THE_NEXT_ONE = [
    *["add", "take", "add", "take", "refuse: NOT_LEADER_OR_FOLLOWER", "arrive"],
]


@example(REFUSED_BY_A_BROKER_THAT_TAKES_THE_NEXT_ONE)
@example(DOUBTFUL_BEHIND_AN_EXPIRED_ONE)
@settings(max_examples=300)
@given(st.lists(st.sampled_from(STEPS), min_size=10, max_size=120))
def test_acknowledged_records_are_in_the_log_once_and_in_order_under_faults(steps: list[str]) -> None:
    play = Play()
    for name in steps:
        play.step(name)
    play.settle()
    log = play.broker.log
    assert len(log) == len(set(log)), "a record is doubled"
    last = -1
    for value, placed in play.sent:
        outcome = placed.outcome
        assert outcome is not None, "a record was neither delivered nor given up"
        if isinstance(outcome, DeliveryFailed):
            assert not (outcome.certain and value in log), "a record that certainly failed is in the log"
            continue
        assert value in log, "an acknowledged record is not in the log"
        place = log.index(value)
        assert outcome.offset in (-1, place)
        assert place > last, "acknowledged records are out of order"
        last = place
    assert play.producer.buffered_bytes == 0
