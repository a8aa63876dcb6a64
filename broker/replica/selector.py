"""Choose which replica a consumer should read from (KIP-392): RackAwareReplicaSelector as a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ReplicaView(NamedTuple):
    """A replica that a consumer could read from: the leader, or a live in-sync follower whose log covers the offset."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    last_caught_up_ms: int


def select_rack_aware(client_rack: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> int:
    """Return the id of the preferred replica: the leader if it is in the client's rack. Otherwise it is the most
    caught-up follower in that rack, or the leader if there is none."""
    if not client_rack or leader.rack == client_rack:
        return leader.broker_id
    near = [replica for replica in followers if replica.rack == client_rack]
    if not near:
        return leader.broker_id
    best = max(near, key=lambda replica: (replica.log_end_offset, replica.last_caught_up_ms, -replica.broker_id))
    return best.broker_id
