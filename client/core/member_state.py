"""States of a member of a consumer group (KIP-848), and how the member acts in each.

Source: Kafka's MemberState.
"""

from __future__ import annotations

from enum import Enum


class MemberState(Enum):
    """State of a member. The value says what the member does in it."""

    UNSUBSCRIBED = "outside of the group, and without partitions to release"
    JOINING = "sends a full heartbeat with epoch 0"
    RECONCILING = "revokes and assigns partitions until it owns what the coordinator has assigned"
    ACKNOWLEDGING = "sends a heartbeat at once with the partitions that it owns now"
    STABLE = "owns what the coordinator has assigned"
    FENCED = "removed by the coordinator: releases its partitions, then joins again"
    STALE = "has left because the application did not poll: releases its partitions at the next poll, then joins again"
    PREPARE_LEAVING = "releases its partitions, then leaves"
    LEAVING = "sends its last heartbeat"
    FATAL = "rejected by the coordinator: releases its partitions, then reports the error"


HEARTBEATING = frozenset(
    {
        MemberState.JOINING,
        MemberState.RECONCILING,
        MemberState.ACKNOWLEDGING,
        MemberState.STABLE,
        MemberState.PREPARE_LEAVING,
        MemberState.LEAVING,
    }
)
"""States in which the member sends heartbeats."""

AT_ONCE = frozenset({MemberState.JOINING, MemberState.ACKNOWLEDGING, MemberState.LEAVING})
"""States in which the next heartbeat does not wait for the heartbeat interval."""

ASSIGNABLE = frozenset({MemberState.JOINING, MemberState.RECONCILING, MemberState.ACKNOWLEDGING, MemberState.STABLE})
"""States in which the member accepts an assignment."""

RELEASING = frozenset({MemberState.FENCED, MemberState.STALE, MemberState.FATAL})
"""States in which the partitions that the member still reads may already belong to other members."""
