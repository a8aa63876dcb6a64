"""The input and output of an assignor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID


class AssignorMember(NamedTuple):
    """One member of the group. `owned` is its present target assignment: topic id → partitions."""

    member_id: str
    instance_id: str | None
    rack: str | None
    subscribed: frozenset[UUID]
    owned: Mapping[UUID, frozenset[int]]


Assignment = dict[str, dict[UUID, frozenset[int]]]
"""Member id → topic id → partitions. Every member has a row; a topic without partitions has none."""

Assignor = Callable[[Sequence[AssignorMember], Mapping[UUID, int]], Assignment]
"""Function from the members and the partition count of each topic to the new target assignment.

Invariants: each partition of a topic that has subscribers is assigned to exactly one of them. The result does not
depend on the order of the input. A second call with the result as the owned partitions returns the same result. A
subscribed topic without a partition count does not exist and is not assigned.
"""
