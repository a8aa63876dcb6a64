"""Handwritten histories of client operations, and the other files of a run with such a history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraft.sim.chaos.history import FINAL_READER, Function, HistoryEvent, HistoryEventType, HistoryRecorder, Place
from kraft.sim.chaos.run.run_folder import ClusterSample, FaultRecord, PartitionSample, RunInfo

P = Place("chaos", 0)
DURATION_MS = 20_000.0
HEALED_MS = 10_000.0


class HistoryBuilder:
    """Builds a history operation by operation, on a clock that the test sets."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._history = HistoryRecorder(lambda: int(self.now_ms * 1e6))

    @property
    def events(self) -> list[HistoryEvent]:
        return self._history.events

    def begin(self, process: str, f: Function, **values: Any) -> HistoryEvent:
        self.now_ms += 1
        return self._history.invoke(process, f, **values)

    def end(
        self, begun: HistoryEvent, type: HistoryEventType = HistoryEventType.OK, error: str = "", **values: Any
    ) -> HistoryEvent:
        self.now_ms += 1
        return self._history.complete(begun, type, error=error, **values)

    def send(
        self,
        value: str,
        offset: int | None = None,
        *,
        type: HistoryEventType = HistoryEventType.OK,
        error: str = "",
        process: str = "producer-0",
        place: Place = P,
        took_ms: float = 1.0,
        **marks: Any,
    ) -> HistoryEvent:
        begun = self.begin(process, Function.SEND, place=list(place), value=value, **marks)
        self.now_ms += took_ms - 1
        told = {} if offset is None else {"offset": offset}
        return self.end(begun, type, error, **told)

    def poll(self, *records: tuple[int, str], process: str = "reader-0", place: Place = P) -> HistoryEvent:
        begun = self.begin(process, Function.POLL)
        return self.end(begun, records=[[*place, [list(record) for record in records]]] if records else [])

    def assign(self, process: str = "reader-0", *places: Place) -> HistoryEvent:
        begun = self.begin(process, Function.ASSIGN, places=[list(place) for place in places or (P,)])
        return self.end(begun)

    def final(self, *records: tuple[int, str], place: Place = P) -> HistoryEvent:
        return self.poll(*records, process=FINAL_READER, place=place)

    def commit(
        self, process: str, offset: int, type: HistoryEventType = HistoryEventType.OK, took_ms: float = 1.0
    ) -> HistoryEvent:
        begun = self.begin(process, Function.COMMIT, group="group", offsets=[[*P, offset]])
        self.now_ms += took_ms - 1
        return self.end(begun, type)

    def topic(
        self,
        f: Function,
        topic: str = "t",
        type: HistoryEventType = HistoryEventType.OK,
        process: str = "churn-0",
        **values: Any,
    ) -> HistoryEvent:
        begun = self.begin(process, f, topic=topic)
        return self.end(begun, type, **values)


def info_of(**values: Any) -> RunInfo:
    """Return the description of a default run in which these values are replaced."""
    usual: dict[str, Any] = {
        "scenario": "by-hand",
        "title": "By hand",
        "about": "",
        "text": "",
        "cluster": "pykraft",
        "client": "kraft",
        "seed": 1,
        "started_at": "2026-01-01T00:00:00+00:00",
        "duration_ms": DURATION_MS,
        "healed_ms": HEALED_MS,
        "end_ms": DURATION_MS + 1_000,
        "command": "kraft chaos run by-hand",
    }
    return RunInfo(**{**usual, **values})


def steady_history(
    until_ms: float = DURATION_MS, every_ms: float = 20.0, silent: Sequence[tuple[float, float]] = ()
) -> HistoryBuilder:
    """Return the history of a producer whose sends succeed. A reader and the final reader receive all records. A send
    that begins in a silent interval is acknowledged at the end of the interval."""
    told = HistoryBuilder()
    told.assign()
    records: list[tuple[int, str]] = []
    while told.now_ms < until_ms - every_ms:
        told.now_ms += every_ms - 2
        end_ms = next((end for begin, end in silent if begin <= told.now_ms < end), 0.0)
        record = (len(records), f"producer-0/{len(records)}")
        told.send(record[1], record[0], took_ms=max(1.0, end_ms - told.now_ms))
        records.append(record)
    told.poll(*records)
    told.now_ms = max(told.now_ms, until_ms)
    told.assign(FINAL_READER)
    told.final(*records)
    return told


def fault_of(**values: Any) -> FaultRecord:
    """Return a fault that kills node 2 from 4 to 6 s, in which these values are replaced."""
    usual: dict[str, Any] = {
        "kind": "kill",
        "text": "kill of node 2",
        "begin_ms": 4_000.0,
        "end_ms": 6_000.0,
        "nodes": (2,),
    }
    return FaultRecord(**{**usual, **values})


def partition_of(**values: Any) -> PartitionSample:
    """Return a sample of partition chaos-0, led by node 2 with all replicas in sync, in which these values are
    replaced."""
    usual: dict[str, Any] = {
        "topic": P.topic,
        "partition": P.partition,
        "leader": 2,
        "leader_epoch": 5,
        "isr": (1, 2, 3),
        "replicas": (1, 2, 3),
    }
    return PartitionSample(**{**usual, **values})


def samples_of(*changes: tuple[float, dict[str, Any]], until_ms: float = DURATION_MS) -> list[ClusterSample]:
    """Return a sample every 100 ms. Each change applies from its time on; `partition` has the changed values of the
    partition."""
    values: dict[str, Any] = {
        "controller": 101,
        "controller_epoch": 3,
        "voters": (101, 102, 103),
        "brokers": (1, 2, 3),
        "running": (1, 2, 3, 101, 102, 103),
        "partition": {},
    }
    found: list[ClusterSample] = []
    due = sorted(changes, key=lambda change: change[0])
    for number in range(int(until_ms / 100) + 1):
        while due and due[0][0] <= number * 100:
            values |= due.pop(0)[1]
        partition = partition_of(**values["partition"])
        rest = {name: value for name, value in values.items() if name != "partition"}
        found.append(ClusterSample(time_ms=number * 100.0, partitions=(partition,), **rest))
    return found


KILLED = (
    (4_100, {"running": (1, 3, 101, 102, 103)}),
    (4_300, {"partition": {"leader": 1, "leader_epoch": 6, "isr": (1, 3)}}),
    (6_000, {"running": (1, 2, 3, 101, 102, 103)}),
    (7_000, {"partition": {"leader": 1, "leader_epoch": 6, "isr": (1, 2, 3)}}),
)
"""Samples of the cluster during the default fault, which kills node 2."""
