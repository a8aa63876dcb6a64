"""The states of a replica: the transition tables are complete, and a Partition follows them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.broker.partition.partition import Partition
from kraft.broker.partition.partition_host import PartitionHost
from kraft.broker.partition.partition_states import (
    APPEND_TRANSITIONS,
    LOG_TRANSITIONS,
    TRANSITIONS,
    AppendEvent,
    AppendState,
    LogEvent,
    LogState,
)
from kraft.config import NodeConfig, TopicConfig
from kraft.seam import InvariantError
from kraft.storage.epochs import EpochCache
from kraft.wire.error_codes import ErrorCode
from tests.stages.broker_harness import PROPERTIES
from tests.stages.images import image_of, orders, three_brokers
from tests.stages.part_stage import TOPIC_ID

BROKER = Path(__file__).parents[3] / "broker"
LED, FOLLOWED = 0, 1


def test_every_replica_state_is_reachable_and_only_removed_is_final() -> None:
    for states, events, table, first in (
        (LogState, LogEvent, LOG_TRANSITIONS, LogState.NEW),
        (AppendState, AppendEvent, APPEND_TRANSITIONS, AppendState.IDLE),
    ):
        assert {first, *table.values()} == set(states)
        assert {event for _, event in table} == set(events)
        stuck = {state for state in states if not any(a is state and b is not state for (a, _), b in table.items())}
        assert stuck == ({LogState.REMOVED} if states is LogState else set())
    assert len(TRANSITIONS) == len(LOG_TRANSITIONS) + len(APPEND_TRANSITIONS)


class Hosted:
    """A partition with a fake host that records the calls to it."""

    def __init__(self) -> None:
        clock: Any = SimpleNamespace(monotonic_ms=lambda: 0)
        self.asked: list[str] = []
        self.host = PartitionHost(clock, 1, 30_000)
        for name in ("request_sync", "request_ready", "request_open"):
            setattr(self.host, name, self._notes(name))
        config = TopicConfig.resolve({}, {}, NodeConfig.parse(PROPERTIES))
        meters: Any = SimpleNamespace()
        self.partition = Partition(self.host, "orders", TOPIC_ID, 0, config, meters)
        self.directory: Any = SimpleNamespace(open_logs={})
        topic = image_of(*three_brokers(), *orders()).topics.get("orders")
        assert topic is not None
        self.led, self.followed = topic.partition(LED), topic.partition(FOLLOWED)

    def _notes(self, name: str) -> Any:
        return lambda partition: self.asked.append(name)

    def taken(self) -> Counter[Any]:
        return self.host.transitions

    def open(self) -> None:
        log: Any = SimpleNamespace(
            log_start_offset=0,
            log_end_offset=0,
            synced_end_offset=0,
            recovery_point=0,
            active=object(),
            epochs=EpochCache(),
            update_high_watermark=lambda mark: None,
        )
        self.partition.opened(log, 0)


def test_a_replica_that_was_never_written_leads_without_a_log_and_appends_once_its_log_is_ready() -> None:
    hosted, ran = Hosted(), list[ErrorCode]()
    partition = hosted.partition
    partition.placed(hosted.directory, is_unwritten=True)
    partition.lead(hosted.led)
    assert (partition.is_unwritten, partition.leader is not None, partition.appendable) == (True, True, False)
    append: Any = SimpleNamespace(ready=True, run=ran.append)
    hosted.host.may_write = lambda partition: True
    partition.append_later(append)
    assert hosted.asked == ["request_open"]
    hosted.open()
    assert (hosted.asked[-1], partition.append_state) == ("request_ready", AppendState.PREPARING)
    partition.readied(hosted.led.leader_epoch)
    assert (ran, partition.appendable) == ([ErrorCode.NONE], True)
    assert hosted.taken() == {
        (LogState.NEW, LogEvent.PLACED_UNWRITTEN): 1,
        (LogState.UNWRITTEN, LogEvent.OPENED): 1,
        (AppendState.IDLE, AppendEvent.PREPARE): 1,
        (AppendState.PREPARING, AppendEvent.READIED): 1,
    }


def test_a_leadership_assigned_during_a_truncation_begins_after_it() -> None:
    hosted = Hosted()
    partition = hosted.partition
    partition.placed(hosted.directory, is_unwritten=False)
    partition.follow(hosted.followed)
    assert partition.waits_for_log
    hosted.open()
    assert partition.is_settled
    partition.truncation_begun()
    partition.lead(hosted.led)
    assert (partition.leader, partition.is_settled, partition.waits_for_log) == (None, False, True)
    partition.truncation_done()
    assert partition.leader is not None


def test_a_log_made_ready_in_an_old_leader_epoch_is_made_ready_again_for_waiting_appends() -> None:
    hosted = Hosted()
    partition = hosted.partition
    partition.placed(hosted.directory, is_unwritten=False)
    partition.lead(hosted.led)
    hosted.open()
    append: Any = SimpleNamespace(ready=True, run=lambda error: None)
    partition.append_later(append)
    partition.lead(hosted.led._replace(leader_epoch=9))
    partition.append_later(append)
    partition.readied(hosted.led.leader_epoch)
    assert partition.append_state is AppendState.PREPARING
    assert hosted.asked == ["request_ready", "request_ready"]
    assert hosted.taken()[AppendState.PREPARING, AppendEvent.OUTDATED] == 1


def test_a_replica_that_failed_stays_offline_and_one_that_was_removed_stays_removed() -> None:
    hosted = Hosted()
    partition = hosted.partition
    partition.placed(hosted.directory, is_unwritten=False)
    hosted.open()
    partition.failed()
    assert (partition.is_offline, partition.log, hosted.directory.open_logs) == (True, None, {})
    partition.failed()
    partition.removed()
    partition.failed()
    assert (partition.is_removed, partition.is_offline) == (True, False)


@pytest.mark.parametrize("happens", [Partition.truncation_begun, Partition.truncation_done, Partition.removed])
def test_a_transition_that_is_not_in_the_table_raises(happens: Any) -> None:
    with pytest.raises(InvariantError, match=r"Partition\(orders-0\): a log that is new cannot be "):
        happens(Hosted().partition)


def test_only_the_partitions_own_module_assigns_its_fields() -> None:
    found = [
        f"{path.relative_to(BROKER)}:{line}"
        for path in BROKER.rglob("*.py")
        if path.name != "partition.py"
        for line in foreign_assignments(path)
    ]
    assert found == []


def foreign_assignments(path: Path) -> Iterator[int]:
    """Return the lines that assign an attribute of a variable called `partition`."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Assign(targets=targets):
                pass
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                targets = [target]
            case _:
                continue
        for target in targets:
            for one in ast.walk(target):
                if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and _is_partition(one.value):
                    yield node.lineno


def _is_partition(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in ("partition", "replica")


def test_checks_catch_a_module_that_assigns_a_field_of_a_partition(tmp_path: Path) -> None:
    written = tmp_path / "other.py"
    written.write_text("partition.log = None\nself.partition.state, x = 1, 2\nrow.partition.index += 1\nself.log = 1\n")
    assert sorted(foreign_assignments(written)) == [1, 2, 3]
