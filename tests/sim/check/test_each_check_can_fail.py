"""Tests that every check accepts a good handwritten history of observations, and reports a similar history with an
error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from kraft.sim.check.observations import (
    BatchWritten,
    BrokerFenced,
    BrokerInactive,
    BrokerRegistered,
    BrokerUnfenced,
    BytesCorrupted,
    Campaigned,
    ControllerReplied,
    EndReported,
    EpochClaimed,
    FetchSent,
    HeartbeatHandled,
    ImagePublished,
    IsrAccepted,
    LogCut,
    LogDurable,
    MetadataFolded,
    NodeDown,
    Observation,
    PartitionRecorded,
    PartitionSeen,
    PreVoteAnswered,
    ProbeEnded,
    ProcessDied,
    ProduceAcknowledged,
    ProduceAnswered,
    ProducedBy,
    ProducerIdSent,
    ProducerIdsRecorded,
    ProposedIsrMember,
    QuorumFetchHandled,
    ReplicaThrottled,
    Restarted,
    RoleSeen,
    SnapshotSeen,
    TimeElapsed,
    TopicDeleted,
    TopicRecorded,
    VoteDurable,
    VoteGranted,
    VotersSeen,
    VotersWritten,
)
from kraft.sim.check.suite import Suite
from tests.sim.check.consumer_group_cases import CONSUMER_GROUP_CASES
from tests.sim.check.share_group_cases import SHARE_GROUP_CASES
from tests.sim.check.transaction_cases import TRANSACTION_CASES

VOTERS = frozenset({101, 102, 103})
TP = ("orders", 0)


def leader(node: int = 101, epoch: int = 1, hw: int = -1, leo: int = 0) -> RoleSeen:
    return RoleSeen(node, 1, epoch, True, node, True, hw, leo, 0)


def follower(node: int = 102, epoch: int = 1, hw: int = -1, leo: int = 0) -> RoleSeen:
    return RoleSeen(node, 1, epoch, False, 101, True, hw, leo, 0)


def written(node: int, base: int, end: int, epoch: int = 1, digest: int = 7, log: tuple[str, int] | None = None):
    return BatchWritten(node, log, epoch, base, end, digest)


def replicated(end: int, log: tuple[str, int] | None = None, nodes: tuple[int, ...] = (101, 102, 103)):
    out: list[Observation] = []
    for node in nodes:
        out += [written(node, 0, end, log=log), LogDurable(node, log, end)]
    return out


def partition(
    node: int = 1,
    hw: int = 0,
    leo: int = 0,
    is_leader: bool = True,
    epoch: int = 0,
    isr=(1, 2, 3),
    min_isr=2,
    topic: str = "orders",
):
    members = frozenset(isr)
    return PartitionSeen(node, 1, (topic, 0), is_leader, epoch, members, members, min_isr, 0, hw, hw, leo)


def recorded(
    elr=(),
    leader_id: int = 1,
    unclean: bool = False,
    at_ms: int = 0,
    isr=(1, 2, 3),
    epoch: int = 0,
    change: int | None = None,
    replicas=(),
    inactive=(),
    adding=(),
) -> PartitionRecorded:
    partition_epoch = epoch if change is None else change
    return PartitionRecorded(
        TP, tuple(isr), tuple(elr), (), leader_id, epoch, partition_epoch, unclean, 2, at_ms, replicas, inactive, adding
    )


def voters_seen(committed: int, *, node: int = 101, record: int = 2, keys=(101, 102, 103), end: int = 12) -> VotersSeen:
    named = tuple((key, f"d{key}") for key in keys)
    return VotersSeen(node, 1, 1, node == 101, record, 1, named, committed, end, 1)


def voters_written(record: int, keys=(101, 102, 103)) -> VotersWritten:
    return VotersWritten(101, record, 1 if record >= 0 else -1, tuple((key, f"d{key}") for key in keys))


def configured(node: int, *keys: int) -> VotersSeen:
    """Return the observation that this leader uses the configured voters, and no VotersRecord."""
    return VotersSeen(node, 1, 1, True, -1, -1, tuple((key, "") for key in keys), -1, 3, 0)


def fenced(age: int = 100, at_ms: int = 200, decided: int | None = 5, connection: int = 1) -> BrokerFenced:
    return BrokerFenced(101, 2, decided, 5, connection, 1, age, 9000, False, at_ms)


def probe(outcome: str, at_ms: int) -> ProbeEnded:
    return ProbeEnded(101, 2, 5, outcome, at_ms)


PROOF = [probe("SAME", 10), probe("REFUSED", 110), probe("REFUSED", 170)]
VOTE = VoteGranted(102, "d", 2, 101, (1, 5))
ANSWERED = ProduceAnswered(1, TP, 5, 5, 0, 0, 3, 2)
PARTITION_LOGS = replicated(5, TP, (1, 2, 3))
COMMITTED = [*PARTITION_LOGS, partition(leo=5), partition(hw=5, leo=5)]
ACKED = [*COMMITTED, ProduceAcknowledged(TP, 0, 5)]
META = replicated(3)


def begun(log_start: int) -> PartitionSeen:
    """Return the observation that the log of the leader, all of which is committed, begins at this offset."""
    return replace(partition(hw=5, leo=5), log_start_offset=log_start)


def synced_to(recovery_point: int) -> PartitionSeen:
    return replace(partition(hw=5, leo=9), recovery_point=recovery_point)


OF_BEFORE = [written(1, 5, 7, epoch=2, log=TP)]
"""Batches of an earlier epoch that only the leader of epoch 3 has."""
ISR_TAKEN = IsrAccepted(
    101,
    TP,
    (1, 2, 5),
    (1, 2, 5),
    (ProposedIsrMember(1, 6, 6, True), ProposedIsrMember(2, 8, 8, True), ProposedIsrMember(3, -1, 9, True)),
)


def ends(end: int, number: int = 1, *, asked: int = 0, epoch: int = 0, is_listed: bool = False) -> EndReported:
    return EndReported(1, TP, epoch, end, is_listed, False, number, asked)


@dataclass(frozen=True, slots=True)
class Later:
    """Placeholder in a history that sets the time of the next observation to at least this time."""

    at_ms: int
    frozen: frozenset[int] = frozenset()


def passing(*times_ms: int) -> list[Observation]:
    return [Later(at_ms) for at_ms in times_ms]


Sequences = tuple[int, int, int]
"""(producer epoch, first sequence number, last sequence number) of a batch."""


def written_by(node: int, base: int, sequences: Sequences) -> BatchWritten:
    """Return the observation that a batch of producer 7 was written."""
    _, first, last = sequences
    batch = written(node, base, base + last - first + 1, log=TP, digest=base)
    return replace(batch, producer=ProducedBy(7, *sequences))


def of_producer(*batches: Sequences, start: int = 0) -> list[Observation]:
    """Return the observations that a leader writes these batches of one producer from offset `start` on, and
    commits them."""
    log: list[Observation] = []
    end = start
    for sequences in batches:
        batch = written_by(1, end, sequences)
        log.append(batch)
        end = batch.next_offset
    return [*log, partition(hw=end, leo=end)]


IMAGE = ImagePublished(0, 1, 9, "a", 9)

SHRUNK = [recorded(replicas=(1, 2, 3)), recorded(isr=(1, 2), epoch=1, replicas=(1, 2, 3))]
WITHOUT_ONE = [replace(recorded(isr=(1, 3), replicas=(1, 2, 3)), unable=(2,))]

CASES: dict[str, tuple[list[Observation], list[Observation]]] = {
    "R1": ([leader(), leader(102, 2)], [leader(102, 1)]),
    "R1 by a message": ([leader()], [EpochClaimed(103, 1, 102)]),
    "R2": ([VoteDurable(102, "d", 2, 101), VOTE, VOTE], [replace(VOTE, candidate=103)]),
    "R3": ([follower(epoch=2)], [follower(epoch=1)]),
    "R3 by a message": ([VoteDurable(101, "d", 2, -1), EpochClaimed(101, 2, -1)], [EpochClaimed(101, 3, -1)]),
    "R4": ([*META, written(101, 3, 5), leader(leo=5), LogCut(101, None, 3, 5)], [LogCut(101, None, 3, 3)]),
    "R4 by one that led until then": (
        [*META, written(101, 3, 5), leader(leo=5), follower(101, 2, leo=5), LogCut(101, None, 0, 3)],
        [leader(101, 3, leo=3), LogCut(101, None, 0, 0)],
    ),
    "R5": (
        [*META, written(101, 3, 4, digest=1), written(102, 3, 4, digest=1)],
        [LogCut(103, None, 0, 0), written(103, 2, 3, digest=8), written(103, 3, 4, digest=1)],
    ),
    "R6": ([*META, leader(hw=3, leo=3), leader(102, 2, leo=3)], [LogCut(103, None, 0, 0), leader(103, 3)]),
    "R7": (
        [*META, leader(hw=3, leo=3), follower(hw=3, leo=3)],
        [LogCut(103, None, 0, 0), written(103, 0, 3, digest=9), follower(103, hw=3, leo=3)],
    ),
    "R8": ([*META, follower(hw=3, leo=3)], [follower(hw=2, leo=3)]),
    "R8 of a leader": ([*META, leader(hw=3, leo=3)], [leader(hw=1, leo=3)]),
    "R8 above the end": ([*META, follower(hw=3, leo=3)], [follower(hw=4, leo=3)]),
    "R9": ([*META, leader(hw=3, leo=3)], [written(101, 3, 4), leader(hw=4, leo=4)]),
    "R9 by a smaller set than the configured one": (
        [*META, leader(hw=3, leo=3)],
        [written(101, 3, 4), LogDurable(101, None, 4), configured(101, 101), leader(hw=4, leo=4)],
    ),
    "R9 by a smaller set than the record's": (
        [*META, leader(hw=3, leo=3)],
        [written(101, 3, 4), LogDurable(101, None, 4), voters_written(2), voters_seen(3, keys=(101,)),
         leader(hw=4, leo=4)],
    ),
    "R9 without an own record": ([*META, leader(hw=3, leo=3)], [leader(102, 2, hw=3, leo=3)]),
    "R11": ([*META, leader(hw=3, leo=3), written(102, 3, 4), LogCut(102, None, 0, 3)], [LogCut(102, None, 0, 2)]),
    "R11 by a voter that comes back with less": (
        [*META, leader(hw=3, leo=3), follower(leo=3), NodeDown(102), Restarted(102, 2, False, False), follower(leo=3)],
        [NodeDown(102), LogCut(102, None, 0, 2), Restarted(102, 3, False, False), follower(leo=2)],
    ),
    "R12": ([*META, leader(hw=3, leo=3)], [LogCut(103, None, 0, 0), written(103, 0, 3, digest=9)]),
    "R14": ([Campaigned(101, "d101", 1), voters_seen(3), Campaigned(101, "d101", 2)], [Campaigned(1, "d1", 3)]),
    "R14 by one that has been taken out": (
        [voters_seen(3), voters_seen(9, record=9, keys=(102, 103)), Campaigned(101, "d101", 2)],
        [voters_seen(12, record=12, keys=(102,)), Campaigned(101, "d101", 3)],
    ),
    "R14 by one with another directory": (
        [voters_seen(3), Campaigned(101, "d101", 2)], [Campaigned(101, "d104", 2)],
    ),
    "R14 by an observer that leads": ([Campaigned(101, "", 1), leader()], [leader(1, 2)]),
    "R15": (
        [*META, leader(hw=3, leo=3), ImagePublished(101, 1, 3, "a", 3), SnapshotSeen(101, 3, 1, "a")],
        [SnapshotSeen(102, 3, 1, "b")],
    ),
    "R15 above the high watermark": (
        [*META, leader(hw=3, leo=3), SnapshotSeen(101, 3, 1, "a")],
        [SnapshotSeen(102, 4, 1, "a"), follower(hw=3, leo=3)],
    ),
    "R15 with another epoch": (
        [*META, leader(hw=3, leo=3), SnapshotSeen(101, 3, 1, "a")],
        [SnapshotSeen(102, 3, 2, "a")],
    ),
    "R18": (
        [leader(), *passing(0, 2_000, 4_900), QuorumFetchHandled(101, 102, 1), *passing(5_000, 9_800)],
        passing(10_000),
    ),
    "R18 by fetches of another epoch": (
        [leader(), *passing(4_900)], [QuorumFetchHandled(101, 102, 0), *passing(5_100)],
    ),
    "R18 by too few of five": (
        [VotersSeen(101, 1, 1, True, -1, -1, tuple((node, "") for node in range(101, 106)), -1, 0, 0), leader(),
         QuorumFetchHandled(101, 102, 1), *passing(4_900)],
        [QuorumFetchHandled(101, 102, 1), *passing(5_100)],
    ),
    "R18 after it stood still": (
        [leader(), *passing(4_900), Later(7_000, frozenset({101})), *passing(11_900)], passing(12_100),
    ),
    "R19": ([VoteDurable(102, "d", 2, 101), VOTE], [replace(VOTE, node=103)]),
    "R19 by a fetch": ([*META, FetchSent(102, 1, 3)], [written(102, 3, 4), FetchSent(102, 1, 4)]),
    "D1": (ACKED, [LogCut(2, TP, 0, 0), partition(node=2, epoch=1, hw=0)]),
    "D1 before commit": (ACKED, [ProduceAcknowledged(TP, 5, 6)]),
    "D2": (COMMITTED, [LogCut(2, TP, 0, 0), written(2, 0, 5, digest=9, log=TP), partition(2, 5, 5, False)]),
    "D3": ([ends(5), ends(5, 2, asked=1), ends(4, 3, asked=0)], [ends(4, 4, asked=1)]),
    "D3 by ListOffsets in a later epoch": (
        [ends(5), ends(4, 2, asked=1, epoch=1), ends(5, 3, asked=2, epoch=1, is_listed=True)],
        [ends(4, 4, asked=3, epoch=1, is_listed=True)],
    ),
    "D3 by ListOffsets of a leader of before": (
        [ends(5, epoch=1), ends(4, 2, asked=1, is_listed=True), ends(4, 3, asked=2, is_listed=True)],
        [ends(3, 4, asked=3, is_listed=True)],
    ),
    "D4": (COMMITTED, [written(1, 5, 6, log=TP), partition(hw=6, leo=6)]),
    "D4 with one that holds something else there": (
        [*COMMITTED, *(written(node, 5, 6, log=TP) for node in (1, 2, 3)), partition(hw=6, leo=6)],
        [*(written(node, 6, 7, log=TP) for node in (1, 2)), written(3, 6, 7, digest=9, log=TP),
         partition(hw=7, leo=7)],
    ),
    "D4 with one that is no replica any more": (
        [*COMMITTED, recorded(isr=(1, 2), replicas=(1, 2)), LogCut(3, TP, 0, 0),
         *(written(node, 5, 6, log=TP) for node in (1, 2)), partition(hw=6, leo=6)],
        [recorded(isr=(1, 2, 3), replicas=(1, 2, 3), epoch=1), *(written(node, 6, 7, log=TP) for node in (1, 2)),
         partition(hw=7, leo=7)],
    ),
    "D5": (COMMITTED, [partition(hw=7, leo=5)]),
    "D5 by a log start that goes back": (
        [*COMMITTED, begun(3), NodeDown(1), Restarted(1, 2, True, False), begun(0), begun(3),
         LogCut(1, TP, 0, 0), partition()],
        [begun(4), begun(3)],
    ),
    "D5 by a recovery point": (
        [*COMMITTED, synced_to(5), written(1, 5, 9, log=TP), LogDurable(1, TP, 9), synced_to(9)],
        [written(1, 9, 10, log=TP), synced_to(10)],
    ),
    "D5 by a high watermark from nowhere": (
        [*COMMITTED, partition(2, 5, 5, is_leader=False)],
        [written(3, 5, 6, log=TP), partition(3, 6, 6, is_leader=False)],
    ),
    "D6": (
        [*COMMITTED, written(1, 5, 6, log=TP), NodeDown(2), written(2, 6, 7, log=TP), Restarted(2, 2, False, False)],
        [written(3, 6, 7, log=TP)],
    ),
    "D6 by an epoch that falls": (
        [*COMMITTED, written(1, 5, 6, epoch=2, log=TP), written(1, 6, 7, epoch=2, log=TP)],
        [written(1, 7, 8, epoch=1, log=TP)],
    ),
    "D6 by a record of the quorum": ([*META, written(101, 3, 4), LogCut(101, None, 9, 9), written(101, 9, 10)],
                                     [written(101, 11, 12)]),
    "D6 by bytes that are no batch": (
        [written(1, 0, 3, log=TP), written(1, 3, 5, log=TP), partition(leo=5), NodeDown(1),
         BytesCorrupted(1, TP, "0.log"),
         Restarted(1, 2, False, False), BytesCorrupted(1, TP, "0.log")],
        [partition(leo=5), BytesCorrupted(1, TP, "0.log")],
    ),
    "D9": ([*COMMITTED, written(2, 5, 6, log=TP), LogCut(2, TP, 0, 5)], [LogCut(2, TP, 0, 3)]),
    "D9 by a folder that goes": (
        [*COMMITTED, LogCut(2, TP, 0, 0), TopicDeleted("orders"), follower(2)],
        [written(3, 5, 6, log=("bills", 0)), partition(3, 6, 6, is_leader=False, topic="bills"),
         LogCut(3, ("bills", 0), 0, 0), follower(3)],
    ),
    "D18": ([*COMMITTED, recorded(isr=(1, 2)), recorded(epoch=1)], [LogCut(3, TP, 0, 0), recorded(isr=(1, 2), epoch=2),
            recorded(epoch=3)]),
    "D18 by a member as long as the others": (
        [*COMMITTED, recorded(isr=(1, 2)), LogCut(3, TP, 0, 0), written(3, 0, 5, log=TP), recorded(change=1)],
        [recorded(isr=(1, 2), change=2), LogCut(3, TP, 0, 0), written(3, 0, 5, digest=9, log=TP), recorded(change=3)],
    ),
    "D18 by the start of the leader's epoch": (
        [*COMMITTED, *OF_BEFORE, written(1, 7, 8, epoch=3, log=TP), recorded(isr=(1, 2), epoch=3),
         written(3, 5, 7, epoch=2, log=TP), recorded(epoch=3, change=4)],
        [recorded(isr=(1, 3), epoch=3, change=5), recorded(epoch=3, change=6)],
    ),
    "D18 by the end of a leader that has written nothing yet": (
        [*COMMITTED, *OF_BEFORE, recorded(isr=(1,), epoch=3), written(2, 5, 7, epoch=2, log=TP),
         recorded(isr=(1, 2), epoch=3, change=4)],
        [recorded(epoch=3, change=5)],
    ),
    "M3": ([recorded(), recorded(epoch=1)], [recorded(epoch=1)]),
    "M3 by a leader": ([recorded(), recorded(epoch=1)], [recorded(epoch=1, change=2, leader_id=2)]),
    "M6": (WITHOUT_ONE, [recorded(epoch=1, inactive=(2,))]),
    "M6 by a leader": (WITHOUT_ONE, [recorded(epoch=1, isr=(1,), inactive=(1,))]),
    "M6 by one whose fence leaves its partitions alone": (
        [recorded(), recorded(isr=(2, 3), leader_id=2, epoch=1, replicas=(1, 2, 3)), BrokerInactive(1), IMAGE],
        [BrokerInactive(2), ImagePublished(0, 1, 10, "b", 10)],
    ),
    "M6 by one in sync whose fence leaves it there": (
        [recorded(replicas=(1, 2, 3, 4)), BrokerInactive(4), IMAGE],
        [BrokerInactive(3), ImagePublished(0, 1, 10, "b", 10)],
    ),
    "M7": ([BrokerRegistered(1, 5), BrokerRegistered(2, 6)], [BrokerRegistered(1, 6)]),
    "R16": ([voters_seen(3)], [voters_seen(3, node=102, record=9, keys=(101, 102), end=9)]),
    "R16 by two at once": ([voters_seen(3)], [voters_seen(9, record=9, keys=(101, 104))]),
    "R16 by two sets": ([voters_seen(3)], [voters_seen(3, node=102, keys=(101, 102))]),
    "R16 by another set than its own log's": ([voters_written(2), voters_seen(3)],
        [voters_seen(9, record=9, keys=(101, 102)), voters_written(9)]),
    "R16 by another set than the configured one": (
        [voters_seen(3), configured(101, 101, 102, 103)], [configured(101, 101)],
    ),
    "R16 by another set than the snapshot's": (
        [voters_written(-1), voters_seen(3, record=-1), voters_seen(3)], [voters_seen(3, record=-1, keys=(101, 102))],
    ),
    "R16 before the last is committed": (
        [voters_seen(3), voters_seen(9, record=9, keys=(101, 102))], [voters_seen(9, record=10, keys=(101,), end=11)],
    ),
    "R16 before the epoch is committed": ([voters_seen(3)], [voters_seen(-1, record=9, keys=(101, 102))]),
    "R16 by a leader that was removed": (
        [voters_seen(3), voters_seen(9, record=9, keys=(102, 103)), leader(hw=9)], [leader(hw=10, leo=11)],
    ),
    "M15": (
        [recorded(), recorded(change=1, replicas=(3, 4, 1, 2))],
        [recorded(change=2, epoch=1, replicas=(3, 4), isr=(3,), leader_id=3)],
    ),
    "M15 by an ISR without any old one": (
        [recorded(isr=(1, 2), replicas=(1, 2, 3, 4), adding=(3, 4)),
         recorded(change=1, replicas=(1, 2, 3, 4), adding=(3, 4))],
        [recorded(change=2, epoch=1, leader_id=3, isr=(3,), replicas=(1, 2, 3, 4), adding=(3, 4))],
    ),
    "M4 by a stranger": (SHRUNK, [recorded(replicas=(1, 2))]),
    "M4 by one in both": ([recorded(), recorded(isr=(1, 2), elr=(3,))], [recorded(elr=(3,))]),
    "M4 by one listed twice": (SHRUNK, [recorded(isr=(1, 2, 2))]),
    "M4 by nobody": (SHRUNK, [recorded(isr=(), leader_id=-1)]),
    "M4 by a replica listed twice": (SHRUNK, [recorded(isr=(1, 2), replicas=(1, 2, 2))]),
    "M5": (SHRUNK, [recorded(leader_id=3, isr=(1, 2))]),
    "M5 by an unclean election": (SHRUNK, [recorded(leader_id=3, isr=(3,), unclean=True)]),
    "D11": ([ANSWERED], [replace(ANSWERED, high_watermark=4)]),
    "D11 in another epoch": ([ANSWERED], [replace(ANSWERED, epoch_now=1)]),
    "D11 committed in another epoch": (
        [partition(hw=5, leo=6), replace(ANSWERED, epoch_now=1)],
        [partition(hw=6, leo=6, epoch=1), replace(ANSWERED, next_offset=6, high_watermark=6, epoch_now=1)],
    ),
    "D11 committed before the ISR shrank": (
        [partition(hw=5, leo=6), partition(hw=5, leo=6, isr=(1,)), replace(ANSWERED, isr_size=1)],
        [partition(hw=6, leo=6, isr=(1,)), replace(ANSWERED, next_offset=6, high_watermark=6, isr_size=1)],
    ),
    "D11 committed in another life": (
        [partition(hw=5, leo=5), ANSWERED], [NodeDown(1), replace(ANSWERED, epoch_now=1)],
    ),
    "D11 under min ISR": ([ANSWERED], [replace(ANSWERED, isr_size=1)]),
    "M9": ([ImagePublished(1, 1, 5, "a", 5)], [ImagePublished(1, 1, 6, "b", 5)]),
    "M1": (
        [ImagePublished(1, 1, 5, "a", 5), ImagePublished(2, 1, 5, "a", 5)], [ImagePublished(3, 1, 5, "b", 5)],
    ),
    "M1 by a second life": (
        [ImagePublished(1, 1, 5, "a", 5), ImagePublished(2, 1, 5, "a", 5)], [ImagePublished(1, 2, 5, "b", 5)],
    ),
    "R13": (
        [*META, VoteDurable(102, "d", 2, 101), replace(VOTE, candidate_epoch_and_offset=(1, 3))],
        [replace(VOTE, candidate_epoch_and_offset=(1, 2))],
    ),
    "R13 by an older epoch": (
        [*META, written(102, 3, 4, epoch=2), LogDurable(102, None, 4),
         replace(VOTE, epoch=3, candidate_epoch_and_offset=(2, 4))],
        [replace(VOTE, epoch=3, candidate_epoch_and_offset=(1, 9))],
    ),
    "M8": (
        [recorded(isr=(1, 2)), recorded(epoch=1)],
        [recorded(isr=(1, 2), epoch=2), replace(recorded(epoch=3), unable=(3,))],
    ),
    "M16": (
        [recorded(replicas=(1, 2, 3)), Restarted(3, 2, False, False), recorded(epoch=1, isr=(1, 2), replicas=(1, 2, 3)),
         BrokerRegistered(3, 9, 2), ImagePublished(0, 1, 9, "a", 9), recorded(epoch=2, replicas=(1, 2, 3))],
        [Restarted(3, 3, False, False), BrokerRegistered(3, 12, 3), ImagePublished(0, 1, 12, "b", 12)],
    ),
    "M16 as an eligible one": (
        [recorded(elr=(3,), isr=(1, 2), replicas=(1, 2, 3)), Restarted(3, 2, True, False, True),
         BrokerRegistered(3, 9, 2), ImagePublished(0, 1, 9, "a", 9), Restarted(2, 2, False, False),
         recorded(epoch=1, isr=(1,), elr=(3,), replicas=(1, 2, 3)), BrokerRegistered(2, 12, 2),
         ImagePublished(0, 1, 12, "b", 12)],
        [Restarted(3, 3, False, False), BrokerRegistered(3, 15, 3), ImagePublished(0, 1, 15, "c", 15)],
    ),
    "M17": ([TopicRecorded("a"), TopicRecorded("b")], [TopicDeleted("orders"), TopicRecorded("a")]),
    "M17 by producer ids": (
        [ProducerIdsRecorded(1000), ProducerIdsRecorded(2000)], [ProducerIdsRecorded(2000)],
    ),
    "D16": (
        [written(1, 0, 5, log=TP), written(1, 5, 9, log=TP), partition(hw=6, leo=9), LogCut(1, TP, 5, 9),
         partition(hw=6, leo=9)],
        [written(1, 9, 12, log=TP), LogCut(1, TP, 9, 12), partition(hw=8, leo=12)],
    ),
    "D19": ([ReplicaThrottled(1, TP, 3, (1, 2))], [ReplicaThrottled(1, TP, 2, (1, 2))]),
    "M2": ([MetadataFolded(5, 2, ())], [MetadataFolded(6, 1, ("partition 0: leader 1, due is leader 2",))]),
    "M8b": ([ISR_TAKEN], [replace(ISR_TAKEN, asked=(1, 2, 4))]),
    "M8b by another leader": ([ISR_TAKEN], [replace(ISR_TAKEN, asked=(2, 2, 5))]),
    "M8b by a fenced member": ([ISR_TAKEN], [replace(ISR_TAKEN, members=(ProposedIsrMember(2, 8, 8, False),))]),
    "M8b by a member of before": ([ISR_TAKEN], [replace(ISR_TAKEN, members=(ProposedIsrMember(2, 7, 8, True),))]),
    "M17 by one producer id": (
        [ProducerIdsRecorded(9), ProducerIdSent(1, 7, 0), ProducerIdSent(1, 7, 1)], [ProducerIdSent(2, 7, 0)],
    ),
    "M17 by a block that is not committed": (
        [ProducerIdsRecorded(9), ProducerIdSent(1, 8, 0)], [ProducerIdSent(1, 9, 0)],
    ),
    "M12": (
        [ImagePublished(1, 1, 6, "a", 6), BrokerUnfenced(1, 5), ImagePublished(1, 2, 3, "b", 6)],
        [ImagePublished(1, 2, 2, "c", 6)],
    ),
    "M12 by one that does not know its registration": (
        [ImagePublished(1, 1, 6, "a", 6), BrokerUnfenced(1, 5)],
        [ImagePublished(1, 2, 7, "b", 7), BrokerUnfenced(1, 7)],
    ),
    "M13": ([written(101, 0, 3), leader(leo=3), written(102, 0, 3)], [written(102, 3, 4)]),
    "M13 before its leader is known": (
        [written(101, 0, 3), leader(leo=3)], [written(102, 3, 5, epoch=2), leader(103, 2)],
    ),
    "D8": ([written(1, 0, 5, 0, log=TP), partition(leo=5), written(2, 0, 5, 0, log=TP)], [written(2, 5, 6, 0, log=TP)]),
    "D8 before its leader is known": (
        [written(1, 0, 5, 0, log=TP), partition(leo=5)], [written(3, 5, 6, log=TP), partition(2, epoch=1)],
    ),
    "D8 by two leaders": ([written(1, 0, 5, 0, log=TP), partition(leo=5)], [partition(2)]),
    "D8 by a name that is given twice": (
        [written(1, 0, 5, 0, log=TP), partition(leo=5)],
        [LogCut(1, TP, 0, 0), written(1, 0, 5, 0, digest=9, log=TP)],
    ),
    "M9 by a reply": ([ControllerReplied(101, 5, 5)], [ControllerReplied(101, 6, 5)]),
    "K1": ([*PROOF, fenced()], [HeartbeatHandled(101, 2, 5, 300), fenced(age=50, at_ms=350)]),
    "K1 with one result": ([*PROOF, fenced()], [probe("SAME", 300), probe("REFUSED", 400), fenced(at_ms=401)]),
    "K1 without SAME": ([*PROOF, fenced()], [BrokerFenced(101, 3, 6, 6, 1, 1, 100, 9000, False, 500)]),
    "K2": ([*PROOF, fenced()], [fenced(decided=4)]),
    "K2 by connection": ([*PROOF, fenced()], [fenced(connection=2)]),
    "K3": (
        [*PROOF, recorded(at_ms=1), fenced(), recorded(leader_id=3, isr=(1, 3), at_ms=210)],
        [recorded(leader_id=4, unclean=True, at_ms=400, isr=(4,)), fenced(at_ms=410),
         recorded(leader_id=2, isr=(2,), at_ms=411), recorded(leader_id=3, isr=(3,), unclean=True, at_ms=420)],
    ),
    "K4": ([PreVoteAnswered(102, (1, 101, -1), (1, 101, -1))], [PreVoteAnswered(102, (1, 101, -1), (2, 101, -1))]),
    "K4b": ([EpochClaimed(101, 1, 101)], [EpochClaimed(103, 2, -1)]),
    "K5": ([probe("SAME", 1)], [probe("SAME", 2)] * 30),
    "K5 by pre-votes": (
        [Campaigned(102, "d", 1, 101)] * 20 + [Campaigned(102, "d", 1, 103)] * 20 + [Campaigned(102, "d", 1)] * 30
        + [NodeDown(102)] + [Campaigned(102, "d", 1, 101)] * 20 + passing(2_000) + [Campaigned(102, "d", 1, 101)] * 20,
        [Campaigned(102, "d", 1, 101)] * 6,
    ),
    "T1": (of_producer((0, 0, 4), (0, 5, 5), (1, 0, 4)), of_producer((1, 0, 4), start=11)),
    "T1 in a partition that is emptied meanwhile": (
        [*of_producer((0, 0, 4), (0, 5, 5)), LogCut(1, TP, 6, 6)],
        [written_by(1, 6, (0, 0, 4)), partition(hw=11, leo=11)],
    ),
    "T2": (of_producer((0, 0, 4), (0, 5, 5), (1, 0, 0)), of_producer((1, 2, 2), start=7)),
    "T2 by an epoch that does not begin at 0": (of_producer((0, 0, 4), (1, 0, 0)), of_producer((2, 5, 5), start=6)),
    "T2 of what is committed": (
        [written_by(1, 0, (0, 0, 4)), written_by(1, 5, (0, 7, 7)), partition(hw=5, leo=6)], [partition(hw=6, leo=6)],
    ),
    "T4": (of_producer((0, 0, 4), (1, 0, 0)), of_producer((0, 5, 5), start=6)),
    "K6": (
        [*PROOF, ProcessDied(2, frozenset({"broker"}), False, True, 900), fenced(at_ms=1000)],
        [ProcessDied(2, frozenset({"broker"}), False, True, 2000), fenced(at_ms=3000)],
    ),
    "K7": (COMMITTED, [partition(hw=5, leo=5, isr=(1,)), partition(hw=6, leo=6, isr=(1,))]),
    "K7 by a member as long as the others": (
        [*COMMITTED, recorded(elr=(3,), isr=(1, 2))],
        [LogCut(3, TP, 0, 0), written(3, 0, 5, digest=9, log=TP), recorded(elr=(3,), isr=(1, 2))],
    ),
    "K7 by a short member": (
        [*COMMITTED, recorded(elr=(3,), isr=(1, 2))],
        [LogCut(3, TP, 0, 0), recorded(elr=(3,), isr=(1, 2))],
    ),
    **TRANSACTION_CASES,
    **SHARE_GROUP_CASES,
    **CONSUMER_GROUP_CASES,
}  # fmt: skip


def run(observations: list[Observation]) -> Suite:
    suite = Suite(VOTERS, is_steady=lambda: True)
    at_ms = 0
    for observation in observations:
        at_ms = max(at_ms, getattr(observation, "at_ms", 0))
        suite.observe(TimeElapsed(observation.frozen) if isinstance(observation, Later) else observation, at_ms)
    return suite


@pytest.mark.parametrize("case", CASES)
def test_checks_catch_each_handwritten_bad_history_and_accept_its_good_counterpart(case: str) -> None:
    good, bad = CASES[case]
    check_id = case.split(" ")[0]
    accepted = run(good)
    assert [str(f) for f in accepted.findings if f.check == check_id] == []
    assert check_id not in accepted.checks.unseen(), "the good history must be non-trivial for this check"
    reported = run(good + bad)
    assert [f for f in reported.findings if f.check == check_id], "the bad history must be reported"


def test_every_check_has_a_history_that_makes_it_fail() -> None:
    assert {check.id for check in Suite(VOTERS).checks.checks} == {case.split(" ")[0] for case in CASES}


@pytest.mark.parametrize(
    ("check", "history"),
    [
        ("R16", [configured(101, 101, 102, 103), leader(), configured(102, 101, 102, 103)]),
        ("M15", [recorded(replicas=(1, 2, 3)), recorded(isr=(1, 2), change=1, replicas=(1, 2, 3))]),
        ("M8", [recorded(), recorded(isr=(1, 2), epoch=1)]),
        ("R13", [VoteDurable(102, "d", 2, 101), VOTE]),
        ("R4", [*META, leader(leo=3), LogCut(102, None, 0, 2)]),
        ("M4", [recorded(), recorded(epoch=1)]),
        ("M5", [recorded(), recorded(epoch=1)]),
        ("M6", SHRUNK),
        ("K3", [*PROOF, recorded(at_ms=1), fenced(), recorded(isr=(1, 3), at_ms=210, change=1)]),
        (
            "M16",
            [recorded(), Restarted(3, 2, True, False, True), BrokerRegistered(3, 9, 2), ImagePublished(0, 1, 9, "", 9)],
        ),
    ],
)
def test_a_check_of_changes_counts_no_input_in_a_history_without_a_change(
    check: str, history: list[Observation]
) -> None:
    suite = run(history)
    assert not suite.findings
    assert check in suite.checks.unseen()


def test_checks_accept_a_deletion_up_to_a_high_watermark_raised_in_the_same_event_loop_pass() -> None:
    history = [written(1, 0, 5, log=TP), written(1, 5, 9, log=TP), partition(hw=2, leo=9), LogCut(1, TP, 5, 9)]
    assert not [found for found in run([*history, partition(hw=5, leo=9)]).findings if found.check == "D16"]
    assert [found for found in run([*history, partition(hw=4, leo=9)]).findings if found.check == "D16"]


def test_a_run_in_which_a_check_had_no_input_has_an_unknown_verdict() -> None:
    assert Suite(VOTERS).checks.verdict() == "unknown"


def test_checks_catch_the_election_of_a_replica_not_caught_up_after_an_unclean_restart() -> None:
    suite = run([*COMMITTED, recorded(isr=(1, 2, 3))])
    suite.damage.lost(2, TP)
    crash = (NodeDown(2), LogCut(2, TP, 0, 3), Restarted(2, 2, False, False))
    for observation in (*crash, recorded(leader_id=2, isr=(1, 2), epoch=1)):
        suite.observe(observation, 0)
    assert not suite.findings, "nobody knows of the restart before it is registered"
    for observation in (BrokerRegistered(2, 8, 1), recorded(leader_id=2, isr=(1, 2), epoch=1)):
        suite.observe(observation, 0)
    assert not [f for f in suite.findings if f.check == "K7"], "nor by a registration from before it, committed after"
    for observation in (BrokerRegistered(2, 9, 2), recorded(leader_id=2, isr=(1, 2), epoch=2)):
        suite.observe(observation, 0)
    assert any(f.check == "K7" for f in suite.findings)
