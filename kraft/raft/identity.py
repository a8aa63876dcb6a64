"""Who takes part: replica keys, voters and voter sets.

A replica is (node id, directory id): a wiped disk is another replica (KIP-853). A key that names no directory stands
for any directory of that node, which is how a static voter set from the configuration works.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kraft.seam import Address


@dataclass(frozen=True, slots=True)
class ReplicaKey:
    node_id: int
    directory_id: UUID | None = None

    def stands_for(self, other: ReplicaKey) -> bool:
        """True if `other` is the replica that this (stored or configured) key names."""
        if self.node_id != other.node_id:
            return False
        return self.directory_id is None or self.directory_id == other.directory_id


@dataclass(frozen=True, slots=True)
class Voter:
    key: ReplicaKey
    address: Address


@dataclass(frozen=True, slots=True)
class VoterSet:
    """Voters in ascending order of node id; no id occurs twice."""

    voters: tuple[Voter, ...]
    ids: tuple[int, ...] = field(init=False, repr=False, compare=False, hash=False)
    _by_id: dict[int, Voter] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.voters, key=lambda voter: voter.key.node_id))
        object.__setattr__(self, "voters", ordered)
        object.__setattr__(self, "ids", tuple(voter.key.node_id for voter in ordered))
        object.__setattr__(self, "_by_id", {voter.key.node_id: voter for voter in ordered})
        if len(self._by_id) != len(ordered):
            raise ValueError(f"a node id occurs twice in the voter set {[v.key.node_id for v in ordered]}")

    def __len__(self) -> int:
        return len(self.voters)

    @property
    def is_configured(self) -> bool:
        """Every voter stands for any directory of its node: each node's configuration names this set."""
        return all(voter.key.directory_id is None for voter in self.voters)

    def find(self, node_id: int) -> Voter | None:
        return self._by_id.get(node_id)

    def includes(self, key: ReplicaKey) -> bool:
        voter = self._by_id.get(key.node_id)
        return voter is not None and voter.key.stands_for(key)

    def differs_by(self, other: VoterSet) -> int:
        """How many replica keys are in one set and not in the other."""
        return len({voter.key for voter in self.voters} ^ {voter.key for voter in other.voters})


class Place(NamedTuple):
    """What a voter set is to one replica; asked for at every step, and made anew with every set."""

    voters: VoterSet
    is_voter: bool
    is_sole_voter: bool
    other_ids: tuple[int, ...]
    """The voters but this one."""


@dataclass(frozen=True, slots=True)
class Identity:
    """This node: its key, the cluster, and whether it may ever vote (it has the controller role)."""

    key: ReplicaKey
    cluster_id: str
    may_vote: bool
    address: Address | None = None

    @property
    def node_id(self) -> int:
        return self.key.node_id

    def place_among(self, voters: VoterSet) -> Place:
        is_voter = self.may_vote and voters.includes(self.key)
        others = tuple(node_id for node_id in voters.ids if node_id != self.key.node_id)
        return Place(voters, is_voter, is_voter and not others, others)
