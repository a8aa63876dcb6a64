"""Members of the quorum: replica keys, voters and voter sets.

A replica is (node id, directory id): a node with a wiped disk is another replica (KIP-853). A key without a directory
id matches any directory of that node; a static voter set from the configuration consists of such keys.
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

    def matches(self, other: ReplicaKey) -> bool:
        """Return whether this (stored or configured) key matches the replica `other`."""
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
        """Whether this is a static set from the configuration: no voter names a directory id."""
        return all(voter.key.directory_id is None for voter in self.voters)

    def find(self, node_id: int) -> Voter | None:
        return self._by_id.get(node_id)

    def includes(self, key: ReplicaKey) -> bool:
        voter = self._by_id.get(key.node_id)
        return voter is not None and voter.key.matches(key)

    def differs_by(self, other: VoterSet) -> int:
        """Return how many replica keys are in exactly one of the two sets."""
        return len({voter.key for voter in self.voters} ^ {voter.key for voter in other.voters})


class OwnMembership(NamedTuple):
    """The relation of one replica to a voter set, computed once per set because every step needs it."""

    voters: VoterSet
    is_voter: bool
    is_sole_voter: bool
    other_ids: tuple[int, ...]
    """Node ids of the voters other than this replica."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of this node: its key, the cluster, and whether it may ever vote (whether it has the controller
    role)."""

    key: ReplicaKey
    cluster_id: str
    may_vote: bool
    address: Address | None = None

    @property
    def node_id(self) -> int:
        return self.key.node_id

    def membership_among(self, voters: VoterSet) -> OwnMembership:
        is_voter = self.may_vote and voters.includes(self.key)
        others = tuple(node_id for node_id in voters.ids if node_id != self.key.node_id)
        return OwnMembership(voters, is_voter, is_voter and not others, others)
