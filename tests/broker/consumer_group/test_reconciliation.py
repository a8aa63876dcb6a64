"""Each row of the table of reconciliation."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.broker.consumer_group.reconciliation import Goal, reconcile
from kraft.broker.consumer_group.records import CurrentMemberValue, HeldPartitions, MemberState

T, U = UUID(int=1), UUID(int=2)
STABLE, UNREVOKED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS
UNRELEASED, UNKNOWN = MemberState.UNRELEASED_PARTITIONS, MemberState.UNKNOWN
EPOCH, TARGET_EPOCH = 4, 6


def current(
    state: MemberState = STABLE, assigned: tuple[int, ...] = (0, 1), revoking: tuple[int, ...] = (), epoch: int = EPOCH
) -> CurrentMemberValue:
    return CurrentMemberValue(epoch, epoch - 1, state, held(assigned), held(revoking))


def held(partitions: tuple[int, ...], since: int = 3) -> HeldPartitions:
    return {T: dict.fromkeys(partitions, since)} if partitions else {}


def goal(
    target: tuple[int, ...], owned: tuple[int, ...] | None = (0, 1), taken: tuple[int, ...] = (), **fields: object
) -> Goal:
    known = None if owned is None else ({T: frozenset(owned)} if owned else {})
    targets = {T: frozenset(target)} if target else {}
    return Goal(
        TARGET_EPOCH, targets, frozenset({T}), known, lambda topic_id, partition: partition not in taken
    )._replace(**fields)  # type: ignore[arg-type]


def outcome(value: CurrentMemberValue | None) -> tuple[MemberState, int, set[int], set[int]]:
    assert value is not None
    return value.state, value.epoch, set(value.assigned.get(T, ())), set(value.revoking.get(T, ()))


@pytest.mark.parametrize("owned", [None, (), (0, 1)])
def test_a_stable_member_of_the_targets_epoch_stays_as_it_is(owned: tuple[int, ...] | None) -> None:
    member = current(epoch=TARGET_EPOCH)
    assert reconcile(member, goal((2,), owned)) is member


@pytest.mark.parametrize("state", [STABLE, UNRELEASED])
@pytest.mark.parametrize("owned", [None, (0, 1), (1,)])
def test_a_member_that_loses_partitions_revokes_them_in_its_old_epoch(
    state: MemberState, owned: tuple[int, ...] | None
) -> None:
    assert outcome(reconcile(current(state), goal((0, 2), owned))) == (UNREVOKED, EPOCH, {0}, {1})


@pytest.mark.parametrize("state", [STABLE, UNRELEASED])
def test_partitions_that_the_client_does_not_own_are_taken_at_once(state: MemberState) -> None:
    assert outcome(reconcile(current(state), goal((0, 2), (0,)))) == (STABLE, TARGET_EPOCH, {0, 2}, set())


@pytest.mark.parametrize("state", [STABLE, UNRELEASED])
def test_a_member_gets_free_partitions_in_the_targets_epoch(state: MemberState) -> None:
    after = reconcile(current(state), goal((0, 1, 2), None))
    assert outcome(after) == (STABLE, TARGET_EPOCH, {0, 1, 2}, set())
    assert after is not None
    assert after.previous_epoch == EPOCH
    assert after.assigned[T] == {0: 3, 1: 3, 2: TARGET_EPOCH}


@pytest.mark.parametrize("state", [STABLE, UNRELEASED])
def test_a_member_waits_for_partitions_that_others_hold(state: MemberState) -> None:
    some = reconcile(current(state), goal((0, 1, 2, 3), taken=(3,)))
    assert outcome(some) == (UNRELEASED, TARGET_EPOCH, {0, 1, 2}, set())
    none = reconcile(current(state), goal((0, 1, 2, 3), taken=(2, 3)))
    assert outcome(none) == (UNRELEASED, TARGET_EPOCH, {0, 1}, set())


def test_a_waiting_member_gets_the_partitions_when_they_are_released() -> None:
    waiting = current(UNRELEASED, epoch=TARGET_EPOCH)
    assert reconcile(waiting, goal((0, 1, 2), taken=(2,))) is waiting
    assert outcome(reconcile(waiting, goal((0, 1, 2)))) == (STABLE, TARGET_EPOCH, {0, 1, 2}, set())


@pytest.mark.parametrize("owned", [None, (0, 1), (1,)])
def test_a_member_that_still_owns_what_it_revokes_does_not_move(owned: tuple[int, ...] | None) -> None:
    revoking = current(UNREVOKED, (0,), (1,))
    assert reconcile(revoking, goal((0, 2), owned)) is revoking


def test_a_member_that_has_revoked_moves_to_the_latest_target() -> None:
    revoking = current(UNREVOKED, (0,), (1,))
    assert outcome(reconcile(revoking, goal((0, 2), (0,)))) == (STABLE, TARGET_EPOCH, {0, 2}, set())
    assert outcome(reconcile(revoking, goal((2,), (0,)))) == (UNREVOKED, EPOCH, set(), {0})
    assert outcome(reconcile(revoking, goal((2,), ()))) == (STABLE, TARGET_EPOCH, {2}, set())
    assert outcome(reconcile(revoking, goal((0, 1), (0,)))) == (STABLE, TARGET_EPOCH, {0, 1}, set())


@pytest.mark.parametrize("owned", [None, (0,)])
def test_a_member_in_an_unknown_state_that_may_own_partitions_is_fenced(owned: tuple[int, ...] | None) -> None:
    assert reconcile(current(UNKNOWN), goal((0,), owned)) is None


def test_a_member_in_an_unknown_state_that_owns_nothing_continues() -> None:
    assert outcome(reconcile(current(UNKNOWN), goal((0, 2), ()))) == (STABLE, TARGET_EPOCH, {0, 2}, set())


def test_an_unsubscribed_topic_is_taken_at_once_whatever_the_target_says() -> None:
    nothing = frozenset[UUID]()
    settled = current(epoch=TARGET_EPOCH)
    changed = goal((0, 1), subscribed=nothing, is_new_subscription=True)
    assert outcome(reconcile(settled, changed)) == (UNREVOKED, TARGET_EPOCH, set(), {0, 1})
    assert outcome(reconcile(current(), changed)) == (UNREVOKED, EPOCH, set(), {0, 1})
    released = goal((0, 1), (), subscribed=nothing, is_new_subscription=True)
    assert outcome(reconcile(settled, released)) == (STABLE, TARGET_EPOCH, set(), set())


def test_an_unsubscribed_topic_joins_what_a_member_is_revoking() -> None:
    revoking = current(UNREVOKED, (0,), (1,))
    changed = goal((0,), subscribed=frozenset(), is_new_subscription=True)
    assert outcome(reconcile(revoking, changed)) == (UNREVOKED, EPOCH, set(), {0, 1})


def test_a_subscription_that_loses_no_assigned_topic_changes_nothing_in_the_same_epoch() -> None:
    settled = current(epoch=TARGET_EPOCH)
    assert reconcile(settled, goal((0, 1), subscribed=frozenset({T, U}), is_new_subscription=True)) is settled
