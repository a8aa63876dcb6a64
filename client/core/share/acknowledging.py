"""Acknowledgements on their way to a broker, and the results of commits.

Acknowledgements of one partition in one request succeed or fail together. Source: ShareAcknowledgeRequest, Kafka's
Acknowledgements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.core.share.records import Acknowledgement, ShareRecord

RENEW = int(Acknowledgement.RENEW)


class TypedOffsets(NamedTuple):
    """Acknowledged offsets without a hole; `last` is inclusive. `types` has one type for all, or one for each."""

    first: int
    last: int
    types: tuple[int, ...]


def typed_offsets(types: Mapping[int, int]) -> list[TypedOffsets]:
    """Return the type of each offset as ascending batches."""
    offsets = sorted(types)
    if offsets and offsets[-1] - offsets[0] + 1 == len(offsets):  # usual: no holes
        kinds = set(types.values())
        one_kind = TypedOffsets(offsets[0], offsets[-1], (int(kinds.pop()),)) if len(kinds) == 1 else None
        return [one_kind or _batch(types, offsets)]
    found: list[TypedOffsets] = []
    start = 0
    for index in range(1, len(offsets) + 1):
        if index == len(offsets) or offsets[index] != offsets[index - 1] + 1:
            found.append(_batch(types, offsets[start:index]))
            start = index
    return found


def _batch(types: Mapping[int, int], offsets: list[int]) -> TypedOffsets:
    every = tuple(int(types[offset]) for offset in offsets)
    return TypedOffsets(offsets[0], offsets[-1], every[:1] if len(set(every)) == 1 else every)


class ShareCommit:
    """The results of the acknowledgements that one commit has found. `is_awaited` is False for a commit whose failures
    the next `poll` raises."""

    def __init__(self, *, is_awaited: bool = True) -> None:
        self.is_awaited = is_awaited
        self.is_cancelled = False
        self.results: dict[TopicPartition, KafkaError | None] = {}
        self.pending = 0
        """Number of acknowledged partitions without a result."""

    def settle(self, partition: TopicPartition, error: KafkaError | None) -> None:
        """Take the result of a partition. Of several results, the first error is kept."""
        self.pending -= 1
        if self.results.get(partition) is None:
            self.results[partition] = error


class PendingAcknowledgements:
    """Acknowledgements of one partition without a result: their types by offset, the records to renew among them, and
    the commits that wait for the result. `since_ms` is the time of the first one."""

    __slots__ = ("attempts", "commits", "renewing", "retry_ms", "since_ms", "types")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.attempts = 0
        self.retry_ms = 0
        """End of the back-off after a failed attempt."""
        self.types: dict[int, int] = {}
        self.renewing: dict[int, ShareRecord] = {}
        self.commits: list[ShareCommit] = []

    @property
    def has_renewals(self) -> bool:
        return bool(self.renewing)

    def join(self, commit: ShareCommit) -> None:
        """Let a commit wait for the result."""
        commit.pending += 1
        self.commits.append(commit)

    def add_later(self, later: PendingAcknowledgements) -> None:
        """Add acknowledgements that were made after these. A commit that waits for both gets one result."""
        self.types.update(later.types)
        self.renewing.update(later.renewing)
        for commit in later.commits:
            if commit in self.commits:
                commit.pending -= 1
            else:
                self.commits.append(commit)


class Settled(NamedTuple):
    """The result of acknowledgements of one partition: the offsets of their records, and None or the error with which
    all failed."""

    partition: TopicPartition
    offsets: tuple[int, ...]
    error: KafkaError | None
    commits: tuple[ShareCommit, ...]
