"""Tests that the replay of the metadata detects unclean elections: those from outside ISR and ELR without
permission."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

from kraft.image import RecoveryState
from kraft.image.events import Event, Partition, PartitionChange, Topic, encode_event
from kraft.sim.check.observations import Observation, PartitionRecorded
from kraft.sim.cluster.fold import MetadataFold
from kraft.sim.cluster.labels import TopicLabels
from kraft.wire.records import Record, encode_batch

TOPIC = UUID(int=7)
NOBODY_LEFT = PartitionChange(TOPIC, 0, isr=(), leader=-1, elr=(), last_known_elr=(1,))


def taken(leader: int) -> PartitionChange:
    """Return a change that elects this leader from outside ISR and ELR."""
    recovering = int(RecoveryState.RECOVERING)
    return PartitionChange(TOPIC, 0, isr=(leader,), leader=leader, last_known_elr=(), leader_recovery_state=recovering)


def unclean(*changes: PartitionChange, may_take: bool = True) -> list[bool]:
    """Return, for each change of a partition that replica 1 leads, whether it is reported as unclean."""
    told: list[Observation] = []
    fold = MetadataFold(
        told.append, lambda _: None, lambda *_: 1, lambda: 0, TopicLabels(), lambda *_: may_take, defaultdict(lambda: 1)
    )
    batches: list[tuple[Event, ...]] = [(Topic("t", TOPIC), Partition(TOPIC, 0, (1, 2, 3), (1,), leader=1))]
    batches += [(change,) for change in changes]
    offset = 0
    for events in batches:
        records = [Record(at, 0, None, encode_event(event)) for at, event in enumerate(events)]
        fold.take([bytes(encode_batch(records, base_offset=offset, leader_epoch=1))])
        offset += len(events)
    return [seen.unclean for seen in told if isinstance(seen, PartitionRecorded)][1:]


def test_an_election_from_outside_isr_and_elr_is_unclean_unless_permitted() -> None:
    assert unclean(NOBODY_LEFT, taken(2)) == [False, False]
    assert unclean(NOBODY_LEFT, taken(2), may_take=False) == [False, True]


def test_a_leader_elected_with_permission_from_outside_isr_and_elr_may_lead_again_before_recovery() -> None:
    away = PartitionChange(TOPIC, 0, isr=(), leader=-1, elr=(2,))
    back = PartitionChange(TOPIC, 0, isr=(2,), leader=2, elr=())
    assert unclean(NOBODY_LEFT, taken(2), away, back) == [False] * 4
    assert unclean(NOBODY_LEFT, taken(2), away, taken(3), may_take=False)[-1]


def test_a_replica_added_to_the_isr_while_its_leaders_directory_fails_may_lead_at_once() -> None:
    """The leader had requested to add the replica to the ISR, so the replica has all that the leader committed since
    then."""
    assert unclean(PartitionChange(TOPIC, 0, isr=(1, 2), leader=2), may_take=False) == [False]
    assert unclean(PartitionChange(TOPIC, 0, isr=(2, 3), leader=2), may_take=False) == [True], "its leader is gone"
    assert unclean(PartitionChange(TOPIC, 0, isr=(1, 2), leader=3), may_take=False) == [True], "3 was not accepted"
