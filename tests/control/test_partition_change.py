"""The one builder of partition changes: tables of election kinds, ELR and reassignment, and a comparison with a naive
implementation.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.control.partitions.partition_change import (
    Election,
    Eligibility,
    PartitionTarget,
    change_key,
    change_partition,
    for_partition,
)
from kraft.image import PartitionState, RecoveryState
from kraft.image.events import PartitionChange
from kraft.image.partitions import NO_LEADER
from kraft.image.replay import changed_partition
from tests.stages.decided_cluster import directory_id, topic_id

TOPIC = topic_id(1)


def state(
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    leader: int = 1,
    **parts: Any,
) -> PartitionState:
    return PartitionState(replicas, isr, leader, 5, 7, **parts)


def build(
    before: PartitionState,
    *,
    active: Iterable[int] = (1, 2, 3),
    election: Election = Election.ONLINE,
    min_isr: int = 2,
    connected: Iterable[int] | None = None,
    **target: Any,
) -> PartitionState:
    """Return the partition after the change; the same object if nothing changes."""
    up = set(active)
    linked = up if connected is None else set(connected)
    eligibility = Eligibility(
        may_lead=lambda broker_id, _directory: broker_id in up,
        is_connected=lambda broker_id: broker_id in linked,
    )
    change = change_partition(
        TOPIC,
        0,
        before,
        election=election,
        eligibility=eligibility,
        min_insync_replicas=min_isr,
        target=PartitionTarget(**target),
    )
    return before if change is None else changed_partition(before, change)


def test_partition_change_is_none_if_nothing_changes() -> None:
    before = state()
    assert build(before) is before


def test_isr_change_raises_only_the_partition_epoch() -> None:
    after = build(state(), isr=(1, 2))
    assert (after.isr, after.leader, after.leader_epoch, after.partition_epoch) == ((1, 2), 1, 5, 8)


def test_new_leader_raises_leader_and_partition_epoch() -> None:
    after = build(state(), active=(2, 3), isr=(2, 3))
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (2, 6, 8)


def test_loss_of_the_leader_raises_the_leader_epoch() -> None:
    after = build(state(isr=(1,)), active=(2, 3), isr=())
    assert (after.leader, after.isr, after.leader_epoch) == (-1, (), 6)


@pytest.mark.parametrize(
    ("election", "leader", "isr", "active", "expected"),
    [
        (Election.ONLINE, 2, (1, 2, 3), (1, 2, 3), 2),
        (Election.ONLINE, 2, (1, 3), (1, 3), 1),
        (Election.ONLINE, -1, (2, 3), (1, 2, 3), 2),
        (Election.ONLINE, -1, (2, 3), (1, 3), 3),
        (Election.ONLINE, -1, (2, 3), (1,), -1),
        (Election.PREFERRED, 2, (1, 2, 3), (1, 2, 3), 1),
        (Election.PREFERRED, 2, (2, 3), (1, 2, 3), 2),
        (Election.PREFERRED, -1, (2, 3), (1, 2, 3), 2),
        (Election.PREFERRED, 2, (1, 2, 3), (2, 3), 2),
        (Election.UNCLEAN, 2, (2,), (1, 2, 3), 2),
        (Election.UNCLEAN, -1, (2,), (1, 3), 1),
        (Election.UNCLEAN, -1, (2,), (), -1),
    ],
)
def test_each_election_type_elects_the_expected_leader_for_given_isr_and_active_brokers(
    election: Election, leader: int, isr: tuple[int, ...], active: tuple[int, ...], expected: int
) -> None:
    assert build(state(isr=isr, leader=leader), active=active, election=election).leader == expected


def test_election_prefers_an_isr_member_whose_connection_is_up() -> None:
    after = build(state(), active=(2, 3), connected=(3,), isr=(2, 3))
    assert after.leader == 3


def test_election_takes_an_isr_member_without_connection_if_no_other_is_left() -> None:
    assert build(state(), active=(2, 3), connected=(), isr=(2, 3)).leader == 2


def test_leader_without_a_connection_to_the_controller_stays_leader() -> None:
    assert build(state(), connected=(2, 3), isr=(1, 2)).leader == 1


def test_unclean_leader_is_alone_in_the_isr_and_recovering() -> None:
    before = state(isr=(), leader=-1, elr=(3,), last_known_elr=(1,))
    after = build(before, active=(2,), election=Election.UNCLEAN)
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (2, (2,), (), ())
    assert after.leader_recovery_state is RecoveryState.RECOVERING


def test_clean_election_picks_no_replica_outside_isr_and_elr() -> None:
    before = state(isr=(), leader=-1, elr=(3,), last_known_elr=(1,))
    assert build(before, active=(1, 2), furthest=1) is before


def test_replica_that_leaves_an_isr_that_becomes_too_small_enters_the_elr() -> None:
    after = build(state(isr=(1, 2)), active=(1,), isr=(1,))
    assert (after.isr, after.elr) == ((1,), (2,))


def test_replica_that_leaves_a_large_enough_isr_does_not_enter_the_elr() -> None:
    assert build(state(), active=(1, 2), isr=(1, 2)).elr == ()


def test_elr_is_cleared_when_the_isr_is_large_enough_again() -> None:
    before = state(isr=(1,), elr=(2,), last_known_elr=(1,))
    after = build(before, isr=(1, 3))
    assert (after.elr, after.last_known_elr) == ((), ())


def test_min_insync_replicas_above_the_number_of_replicas_counts_as_that_number() -> None:
    before = state(replicas=(1, 2), isr=(1, 2))
    assert build(before, min_isr=5, active=(1,), isr=(1,)).elr == (2,)
    assert build(state(replicas=(1,), isr=(1,)), min_isr=5).elr == ()


def test_last_isr_member_enters_the_elr_and_is_kept_as_last_known_leader() -> None:
    after = build(state(isr=(1,), elr=(2,)), active=(), isr=())
    assert (after.isr, after.elr, after.last_known_elr, after.leader) == ((), (2, 1), (1,), -1)


def test_eligible_replica_is_elected_cleanly_from_an_empty_isr() -> None:
    before = state(isr=(), elr=(2, 1), leader=-1, last_known_elr=(1,))
    after = build(before, active=(2,))
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (2, (2,), (1,), ())
    assert after.leader_recovery_state is RecoveryState.RECOVERED


def test_elr_is_cleared_if_its_elected_member_alone_can_move_the_high_watermark() -> None:
    before = state(isr=(), elr=(2, 1), leader=-1, last_known_elr=(1,))
    assert build(before, active=(2,), min_isr=1).elr == ()


def test_unclean_restart_removes_the_replica_from_isr_and_elr() -> None:
    before = state(isr=(1,), elr=(2,))
    assert build(before, isr=(1,), unclean_restarted=frozenset((2,))).elr == ()
    after = build(before, active=(2,), isr=(), unclean_restarted=frozenset((1,)))
    assert (after.isr, after.elr, after.leader) == ((2,), (), 2)


def test_sole_isr_member_that_restarted_uncleanly_is_kept_as_last_known_leader() -> None:
    before = state(replicas=(1,), isr=(1,))
    after = build(before, active=(), isr=(), unclean_restarted=frozenset((1,)))
    assert (after.isr, after.elr, after.last_known_elr, after.leader) == ((), (), (1,), -1)
    back = build(after, active=(1,), furthest=1)
    assert (back.leader, back.isr) == (1, (1,))
    assert back.leader_recovery_state is RecoveryState.RECOVERING


def test_replica_whose_log_reaches_furthest_is_elected_only_if_it_may_lead() -> None:
    before = state(isr=(), leader=-1, last_known_elr=(1,))
    assert build(before, active=(2,), furthest=1) is before
    assert build(before, active=(1, 2), furthest=2).leader == 2


def test_unclean_election_prefers_the_last_known_leader() -> None:
    before = state(isr=(), leader=-1, last_known_elr=(2,))
    assert build(before, active=(1, 2), election=Election.UNCLEAN).leader == 2
    assert build(before, active=(1, 3), election=Election.UNCLEAN).leader == 1


def test_replica_whose_directory_is_offline_is_not_elected() -> None:
    directories = tuple(directory_id(one) for one in (1, 2, 3))
    before = state(isr=(2, 3), leader=-1, directories=directories)
    eligibility = Eligibility(may_lead=lambda broker_id, directory: directory != directory_id(2))
    change = change_partition(
        TOPIC, 0, before, election=Election.ONLINE, eligibility=eligibility, min_insync_replicas=1
    )
    assert change is not None
    assert change.leader == 3


def test_reassignment_completes_when_all_new_replicas_are_in_sync() -> None:
    directories = tuple(directory_id(one) for one in (4, 5, 1, 2))
    before = state(
        replicas=(4, 5, 1, 2), isr=(1, 2, 4), leader=1, adding=(4, 5), removing=(1, 2), directories=directories
    )
    after = build(before, active=(1, 2, 4, 5), isr=(1, 2, 4, 5))
    assert (after.replicas, after.isr, after.adding, after.removing) == ((4, 5), (4, 5), (), ())
    assert after.directories == (directory_id(4), directory_id(5))
    assert (after.leader, after.leader_epoch) == (4, 6)


def test_reassignment_does_not_complete_while_a_new_replica_lags() -> None:
    before = state(replicas=(4, 1), isr=(1,), adding=(4,), removing=(1,))
    assert build(before, active=(1, 4)) is before


def test_partition_change_that_drops_a_replica_repeats_the_leader_to_raise_the_leader_epoch() -> None:
    before = state(replicas=(1, 2, 3), isr=(1, 2, 3), removing=(3,))
    after = build(before, isr=(1, 2, 3))
    assert (after.replicas, after.leader, after.leader_epoch) == ((1, 2), 1, 6)


def test_partition_change_contains_only_changed_fields() -> None:
    before = state()
    change = change_partition(
        TOPIC,
        0,
        before,
        election=Election.ONLINE,
        eligibility=Eligibility(may_lead=lambda *_: True),
        min_insync_replicas=1,
        target=PartitionTarget(isr=(1, 2)),
    )
    assert change == PartitionChange(TOPIC, 0, isr=(1, 2))


replica_sets = st.lists(st.integers(1, 5), unique=True, max_size=5).map(tuple)


@st.composite
def partitions(draw: st.DrawFn) -> PartitionState:
    """Draw a partition state that the builder itself can have made."""
    replicas = draw(st.lists(st.integers(1, 5), unique=True, min_size=1).map(tuple))
    isr = tuple(one for one in replicas if draw(st.booleans()))
    elr = tuple(one for one in replicas if one not in isr and draw(st.booleans()))
    last_known = () if isr or elr else (draw(st.sampled_from(replicas)),)
    leader = draw(st.sampled_from((*isr, -1))) if isr else -1
    return PartitionState(replicas, isr, leader, 5, 7, elr, last_known)


@given(
    before=partitions(),
    keep=st.sets(st.integers(1, 5)),
    active=st.sets(st.integers(1, 5)),
    unclean=st.sets(st.integers(1, 5), max_size=2),
    election=st.sampled_from(Election),
    min_isr=st.integers(1, 4),
    furthest=st.integers(1, 5) | st.just(NO_LEADER),
)
def test_every_partition_change_keeps_the_partitions_invariants(
    before: PartitionState,
    keep: set[int],
    active: set[int],
    unclean: set[int],
    election: Election,
    min_isr: int,
    furthest: int,
) -> None:
    isr = tuple(one for one in before.isr if one in keep and one not in unclean)
    after = build(
        before,
        active=active,
        election=election,
        min_isr=min_isr,
        furthest=furthest,
        isr=isr,
        unclean_restarted=frozenset(unclean),
    )
    safe = (set(before.isr) | set(before.elr)) - (unclean - set(isr))
    assert after.leader == -1 or after.leader in after.isr
    assert not set(after.isr) & set(after.elr)
    assert after.isr or after.elr or after.last_known_elr
    assert set(after.isr) | set(after.elr) <= set(before.replicas)
    assert set(after.elr) <= safe
    assert not set(after.elr) & unclean
    if len(after.isr) >= min(min_isr, len(before.replicas)):
        assert after.elr == ()
    if after.leader != -1 and after.leader not in safe:
        assert after.leader_recovery_state is RecoveryState.RECOVERING
        assert election is Election.UNCLEAN or after.leader == furthest
    if after is not before:
        assert after.partition_epoch == before.partition_epoch + 1
        assert (after.leader_epoch > before.leader_epoch) == (after.leader != before.leader)


def naive_online_leader(before: PartitionState, active: set[int]) -> int:
    """Naive implementation of an online election: an active member of the ISR, or of the ELR if the ISR is empty."""
    pool = before.isr or before.elr
    if before.leader in pool and before.leader in active:
        return before.leader
    return next((one for one in before.replicas if one in pool and one in active), -1)


@given(before=partitions(), active=st.sets(st.integers(1, 5)))
def test_online_election_agrees_with_a_simple_reference_implementation(
    before: PartitionState, active: set[int]
) -> None:
    assert build(before, active=active).leader == naive_online_leader(before, active)


def test_the_same_cause_changes_partitions_in_equal_states_in_the_same_way() -> None:
    """The change that is cached for one partition is valid for all partitions in an equal state; only the epochs may
    differ."""
    chance = random.Random(11)
    directories = (UUID(int=5 << 64), UUID(int=6 << 64), UUID(int=7 << 64))
    eligible = Eligibility(may_lead=lambda broker_id, _: broker_id != 3)
    known: dict[object, PartitionChange | None] = {}
    hits = 0
    for number in range(3_000):
        replicas = tuple(chance.sample((1, 2, 3), 3))
        isr = tuple(chance.sample(replicas, chance.randint(0, 3)))
        elr = tuple(one for one in replicas if one not in isr and chance.random() < 0.5)
        leader = chance.choice(isr) if isr else NO_LEADER
        state = PartitionState(replicas, isr, leader, chance.randint(0, 9), number, elr, directories=directories)
        election = chance.choice(tuple(Election))
        target = PartitionTarget(isr=tuple(one for one in isr if one != 3))
        change = change_partition(
            UUID(int=1), number, state, election=election, eligibility=eligible, min_insync_replicas=2, target=target
        )
        shape = (change_key(state), election)
        if shape in known:
            hits += 1
            assert for_partition(known[shape], UUID(int=1), number) == change
        known[shape] = change
    assert hits > 1_000
