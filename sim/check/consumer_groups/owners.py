"""Check of the owners of partitions, as the members' applications know them (G2c)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kraft.sim.check.base import Check
from kraft.sim.check.consumer_groups.ledger import GroupLedger
from kraft.sim.check.group_members import MemberEnded, PartitionsRevoked
from kraft.sim.check.observations import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionsOwned:
    """Observation: an application is told that its member, on the host `member`, owns these partitions from now on."""

    group: str
    member: str
    member_id: str
    partitions: frozenset[TopicPartition]


class OwnersAreAlone(Check):
    """Check that a member gets a partition only after the owner before it has released it, has died, or is no longer in
    the group. A member that was removed, or that has left because its application did not poll, may believe for a while
    that it owns partitions: its commits fail (G4b). It must have released them when it gets an assignment again, also
    an empty one."""

    id = "G2c"
    statement = "a member gets a partition only if no other member of the group still owns it"

    def __init__(self, ledger: GroupLedger) -> None:
        super().__init__()
        self._ledger = ledger
        self._owned: dict[tuple[str, TopicPartition], PartitionsOwned] = {}
        """(host of a member, partition) → the observation by which the member owns it."""
        self._last_owners: dict[tuple[str, TopicPartition], str] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PartitionsOwned: self._assigned, PartitionsRevoked: self._revoked, MemberEnded: self._ended}

    def _assigned(self, seen: PartitionsOwned) -> None:
        for partition in seen.partitions:
            self._owned[seen.member, partition] = seen
            if self._last_owners.get((seen.group, partition), seen.member) != seen.member:
                self.count()
            self._last_owners[seen.group, partition] = seen.member
        members = self._ledger.group(seen.group).present_ids
        own = {partition for (host, partition), one in self._owned.items() if host == seen.member}
        for (host, partition), other in self._owned.items():
            is_shared = host != seen.member and partition in own and other.group == seen.group
            if is_shared and other.member_id in members:
                self.fail(
                    "two members own one partition",
                    group=seen.group, partition=partition, owner=other.member, owner_id=other.member_id,
                    member=seen.member, member_id=seen.member_id,
                )  # fmt: skip

    def _revoked(self, gone: PartitionsRevoked) -> None:
        for partition in gone.partitions:
            self._owned.pop((gone.member, partition), None)

    def _ended(self, ended: MemberEnded) -> None:
        for key in [key for key in self._owned if key[0] == ended.member]:
            del self._owned[key]
