"""Each case of the check of a member's epoch."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.broker.consumer_group.epochs import is_epoch_valid
from kraft.broker.consumer_group.records import CurrentMemberValue, MemberState
from kraft.broker.consumer_group.requests import Partitions

TOPIC, OTHER = UUID(int=1), UUID(int=2)
CURRENT = CurrentMemberValue(7, 5, MemberState.STABLE, {TOPIC: {0: 5, 1: 7}}, {OTHER: {0: 3}})


@pytest.mark.parametrize(
    ("epoch", "owned", "is_valid"),
    [
        (0, {}, True),
        (0, {TOPIC: frozenset({9})}, True),
        (7, None, True),
        (7, {OTHER: frozenset({9})}, True),
        (8, {}, False),
        (5, {}, True),
        (5, {TOPIC: frozenset({0})}, True),
        (5, {TOPIC: frozenset({0, 1})}, True),
        (5, {TOPIC: frozenset({0, 2})}, False),
        (5, {OTHER: frozenset({0})}, False),
        (5, None, False),
        (6, {}, False),
        (4, {}, False),
    ],
)
def test_only_the_members_epoch_and_the_previous_one_after_a_lost_reply_are_valid(
    epoch: int, owned: Partitions | None, is_valid: bool
) -> None:
    assert is_epoch_valid(CURRENT, epoch, owned) is is_valid


def test_a_member_away_in_epoch_minus_two_cannot_use_an_older_epoch() -> None:
    away = CURRENT._replace(epoch=-2)
    assert not is_epoch_valid(away, 7, {})
    assert not is_epoch_valid(away, 5, {})
