"""Handwritten histories of consumer groups: for each check a history to accept, and a continuation that violates it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kraft.broker.consumer_group.records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentMemberKey,
    CurrentMemberValue,
    MemberState,
    TargetEpochKey,
    TargetEpochValue,
)
from kraft.broker.group.records import GroupKey, GroupValue, MemberValue, OffsetKey, OffsetValue
from kraft.sim.check.consumer_groups.answers import CommitAnswered, CommitRequested, HeartbeatAccepted
from kraft.sim.check.consumer_groups.owners import PartitionsOwned
from kraft.sim.check.consumer_groups.states import CoordinatorCompared, MixedGroupSettled
from kraft.sim.check.group_members import MemberEnded, PartitionsRevoked
from kraft.sim.check.observations import BatchWritten, LoggedGroupEntry, Observation, PartitionSeen

LOG, PLACE = ("__consumer_offsets", 0), ("orders", 0)
NODE = 1
MEMBERS = frozenset({NODE, 2, 3})
GROUP, TOPIC_ID = "billing", UUID(int=7)


def committed(offset: int, *entries: tuple[Any, Any]) -> list[Observation]:
    """Return the observations that a coordinator writes these records as one batch, and that the batch is committed."""
    logged = tuple(LoggedGroupEntry(*entry) for entry in entries)
    end = offset + 1
    return [
        BatchWritten(NODE, LOG, 0, offset, end, offset, group_entries=logged),
        PartitionSeen(NODE, 1, LOG, True, 0, MEMBERS, MEMBERS, 2, 0, end, end, end),
    ]


def epochs(group: int, assignment: int) -> list[tuple[Any, Any]]:
    return [(ConsumerGroupKey(GROUP), ConsumerGroupValue(group)), (TargetEpochKey(GROUP), TargetEpochValue(assignment))]


def member(name: str) -> tuple[Any, Any]:
    value = ConsumerMemberValue(None, None, name, "", ("orders",), None, 9_000)
    return ConsumerMemberKey(GROUP, name), value


def removed(name: str) -> list[tuple[Any, Any]]:
    return [(CurrentMemberKey(GROUP, name), None), (ConsumerMemberKey(GROUP, name), None)]


def has(name: str, epoch: int, *partitions: int, revoking: tuple[int, ...] = ()) -> tuple[Any, Any]:
    """Return the record that a member has these partitions in this epoch."""
    held = {TOPIC_ID: dict.fromkeys(partitions, epoch)} if partitions else {}
    lost = {TOPIC_ID: dict.fromkeys(revoking, epoch)} if revoking else {}
    state = MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE
    return CurrentMemberKey(GROUP, name), CurrentMemberValue(epoch, epoch - 1, state, held, lost)


def away(name: str) -> tuple[Any, Any]:
    """Return the record that a static member has left for a while."""
    return CurrentMemberKey(GROUP, name), CurrentMemberValue(-2, 1, MemberState.STABLE)


def classic(generation: int, *names: str) -> tuple[Any, Any]:
    members = tuple(MemberValue(name, None, name, "", 9_000, 9_000, b"", b"") for name in names)
    return GroupKey(GROUP), GroupValue("consumer", generation, "range", None, 0, members)


def offset(value: int) -> tuple[Any, Any]:
    return OffsetKey(GROUP, *PLACE), OffsetValue(value, -1, "", 0)


def asked(number: int, name: str, epoch: int, value: int) -> CommitRequested:
    return CommitRequested(number, GROUP, name, epoch, {PLACE: value}, {"orders": TOPIC_ID})


def accepted(number: int) -> CommitAnswered:
    return CommitAnswered(number, GROUP, frozenset({PLACE}))


def refused(number: int) -> CommitAnswered:
    return CommitAnswered(number, GROUP, frozenset())


def owned(name: str) -> PartitionsOwned:
    return PartitionsOwned(GROUP, f"host-{name}", name, frozenset({PLACE}))


def told(name: str, epoch: int, *partitions: int, is_shown: bool = True) -> HeartbeatAccepted:
    assigned = frozenset((TOPIC_ID, index) for index in partitions) if is_shown else None
    return HeartbeatAccepted(NODE, GROUP, name, epoch, assigned)


ONE = committed(0, *epochs(1, 1), member("a"), has("a", 1, 0, 1))
TWO_JOINED = [*ONE, *committed(1, *epochs(2, 2), member("b"), has("b", 2), has("a", 1, 0, revoking=(1,)))]
TWO = [*TWO_JOINED, *committed(2, has("a", 2, 0)), *committed(3, has("b", 2, 1))]
FENCED, FENCED_AT_5 = (committed(at, *removed("a"), *epochs(3, 2)) for at in (4, 5))

CONSUMER_GROUP_CASES: dict[str, tuple[list[Any], list[Any]]] = {
    "G1b": (TWO, committed(4, *epochs(1, 1))),
    "G1b by a member": (TWO, committed(4, has("a", 1, 0))),
    "G1b by a member of a later epoch than its assignment": (TWO, committed(4, has("a", 3, 0))),
    "G1b by an assignment of a later epoch than its group": (TWO, committed(4, *epochs(2, 3))),
    "G1b by a change to the classic protocol": (
        [*TWO, *committed(4, *removed("a"), (ConsumerGroupKey(GROUP), None), classic(3, "b"))],
        committed(5, classic(2, "b")),
    ),
    "G1b by a change from the classic protocol": (
        committed(0, classic(5, "b")), committed(1, classic(5), *epochs(4, 4), member("b"), has("b", 4, 1))
    ),
    "G2b": (TWO, committed(4, has("b", 2, 0, 1))),
    "G2b before a revocation is confirmed": (TWO_JOINED, committed(2, has("b", 2, 1))),
    "G2c": ([*TWO, owned("a"), PartitionsRevoked("host-a", frozenset({PLACE})), owned("b")], [owned("a")]),
    "G2c after the end of a member": ([*TWO, owned("a"), MemberEnded("host-a"), owned("b")], [owned("a")]),
    "G2c by a member that is still in the group": ([*TWO, owned("a"), *FENCED, owned("b")], [owned("c")]),
    "G2c by a static member that is away, and by one that is back": (
        [*TWO, owned("a"), *committed(4, away("a")), owned("b")],
        [*committed(5, has("a", 2, 0)), PartitionsOwned(GROUP, "host-a", "a", frozenset())],
    ),
    "G2c by a member that was removed and has joined again": (
        [*TWO, owned("a"), *FENCED, owned("b"), *committed(5, member("a"), has("a", 2))],
        [PartitionsOwned(GROUP, "host-a", "a", frozenset())],
    ),
    "G3c": (
        [*ONE, asked(1, "a", 1, 3), *committed(1, offset(3)), accepted(1), asked(2, "a", 1, 5),
         *committed(2, offset(5)), accepted(2)],
        [asked(3, "a", 1, 4), *committed(3, offset(4))],
    ),
    "G3c by an offset that was committed before": (
        [*ONE, asked(1, "a", 1, 3), *committed(1, offset(3)), accepted(1), asked(2, "a", 1, 5),
         *committed(2, offset(5)), accepted(2)],
        [asked(3, "a", 1, 3), *committed(3, offset(3))],
    ),
    "G3c after a commit that was late although it was refused": (
        [*ONE, asked(1, "a", 1, 4), refused(1), asked(2, "a", 1, 5), *committed(1, offset(5)),
         accepted(2), *committed(2, offset(4))],
        [asked(3, "a", 1, 5), *committed(3, offset(5)), accepted(3), asked(4, "a", 1, 3), *committed(4, offset(3))],
    ),
    "G3c by an offset that no member has sent": (
        [*ONE, asked(1, "a", 1, 3), *committed(1, offset(3)), accepted(1), asked(2, "a", 1, 5),
         *committed(2, offset(5))],
        committed(3, offset(6)),
    ),
    "G3c after a commit that was late": (
        [*ONE, asked(1, "a", 1, 4), asked(2, "a", 1, 5), *committed(1, offset(5)), accepted(2),
         *committed(2, offset(4))],
        [accepted(1), asked(3, "a", 1, 3), *committed(3, offset(3))],
    ),
    "G4b": (
        [*TWO, asked(1, "a", 2, 5), asked(2, "a", 2, 6), *committed(4, offset(5)), accepted(1), *FENCED_AT_5,
         refused(2)],
        committed(6, offset(6)),
    ),
    "G4b of an epoch before the member got the partition": (
        [*TWO, asked(1, "a", 1, 5), *committed(4, has("a", 2, 0, 1)), refused(1)],
        committed(5, offset(5)),
    ),
    "G4b of an old generation": (
        [*committed(0, classic(5, "a")), asked(1, "a", 4, 5), refused(1), asked(2, "a", 5, 6),
         *committed(1, offset(6)), accepted(2)],
        committed(2, offset(5)),
    ),
    "G6b": ([*TWO, told("b", 2, 1)], [told("b", 3, 1)]),
    "G6b by an assignment": ([*TWO, told("b", 2, 1), told("b", 2, is_shown=False)], [told("b", 2, 0, 1)]),
    "G6b by a member that has not left": ([*TWO, *FENCED, told("a", -1)], [told("b", -1, is_shown=False)]),
    "G7b": (
        [CoordinatorCompared(NODE, GROUP, True, {"epoch": 2}, {"epoch": 2})],
        [CoordinatorCompared(NODE, GROUP, False, {"epoch": 3}, {"epoch": 2})],
    ),
    "G9b": (
        [*TWO, MixedGroupSettled(GROUP, {PLACE: ("host-a",)})],
        [MixedGroupSettled(GROUP, {PLACE: ("host-a", "host-b")})],
    ),
    "G9b by a partition without an owner": (
        [*TWO, MixedGroupSettled(GROUP, {PLACE: ("host-a",)})], [MixedGroupSettled(GROUP, {PLACE: ()})],
    ),
    "G9b by a member that still has to revoke": (
        [*TWO, MixedGroupSettled(GROUP, {PLACE: ("host-a",)})],
        [*committed(4, *epochs(3, 3), has("a", 3, 0), has("b", 2, revoking=(1,))),
         MixedGroupSettled(GROUP, {PLACE: ("host-a",)})],
    ),
}  # fmt: skip
