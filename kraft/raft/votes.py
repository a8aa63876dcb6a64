"""Majority arithmetic: the size of a majority, the offset that a majority has reached, and the tally of an election.

Source: Raft paper, section 5.2, section 5.4, KIP-595, KIP-996. The tests compare each function with a naive
implementation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


def majority_of(voters: int) -> int:
    """Return how many of `voters` voters are a majority; 1 for no voters, so that an empty set never decides."""
    return voters // 2 + 1


def majority_offset(end_offsets: Collection[int]) -> int:
    """Return the largest offset that a majority of the given log ends has reached; each voter counts once."""
    return sorted(end_offsets)[(len(end_offsets) - 1) // 2]


class Tally:
    """Votes of one round. An unreachable voter does not count in this round unless it answers after all."""

    __slots__ = ("_granted", "_rejected", "_unreachable", "_voters")

    def __init__(self, voters: Iterable[int]) -> None:
        self._voters = tuple(voters)
        self._granted: set[int] = set()
        self._rejected: set[int] = set()
        self._unreachable: set[int] = set()

    def record(self, voter: int, *, granted: bool) -> None:
        """Count a voter's response. If a voter sends a second, different response, only its first one counts."""
        if voter not in self._voters or voter in self._granted or voter in self._rejected:
            return
        self._unreachable.discard(voter)
        (self._granted if granted else self._rejected).add(voter)

    def record_unreachable(self, voter: int) -> None:
        if voter in self._voters and voter not in self._granted and voter not in self._rejected:
            self._unreachable.add(voter)

    @property
    def granting(self) -> tuple[int, ...]:
        return tuple(sorted(self._granted))

    @property
    def unrecorded(self) -> tuple[int, ...]:
        """Voters that have neither granted nor rejected, including the unreachable ones."""
        return tuple(v for v in self._voters if v not in self._granted and v not in self._rejected)

    @property
    def is_won(self) -> bool:
        return len(self._granted) >= majority_of(len(self._voters))

    @property
    def is_lost(self) -> bool:
        """Whether the round can no longer be won: the voters that granted, plus those that may still answer, are no
        majority."""
        out = len(self._rejected) + len(self._unreachable)
        return len(self._voters) - out < majority_of(len(self._voters))
