"""Fetchers: one LeaderFetcher for each broker from which this broker fetches.

Invariant: fetching of a partition restarts only in a new leader epoch, and never while the log is being truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kraft.image.partitions import NO_LEADER

if TYPE_CHECKING:
    from kraft.broker.following.leader_fetcher import LeaderFetcher
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop


class Fetchers:
    """The fetchers of one broker. Iterating yields the fetcher of each leader that this broker ever followed. No method
    is a coroutine."""

    def __init__(self, loop: Loop, node_id: int, make: Callable[[int], LeaderFetcher]) -> None:
        """`make(leader_id)` creates the fetcher of a leader."""
        self._loop = loop
        self._node_id = node_id
        self._make = make
        self._fetchers: dict[int, LeaderFetcher] = {}

    def __iter__(self) -> Iterator[LeaderFetcher]:
        return iter(list(self._fetchers.values()))

    def begin(self, partition: Partition) -> None:
        """Start fetching from the partition's leader, if it has a leader and its log is open and not being truncated.
        Otherwise the caller must call this again later."""
        state = partition.state
        if state is None or state.leader in (NO_LEADER, self._node_id):
            return
        if partition.log is None and not partition.is_unwritten:
            return
        if partition.is_truncating:
            return
        fetcher = self._fetchers.get(state.leader)
        if fetcher is None:
            fetcher = self._fetchers[state.leader] = self._make(state.leader)
            self._loop.start_task(fetcher.run)
        if fetcher.followed(partition) is None:
            fetcher.add(partition, state.leader_epoch)
            fetcher.nudge()

    def stop(self, partition: Partition) -> None:
        """Stop fetching the partition, so that a late response has no effect on it."""
        for fetcher in self._fetchers.values():
            fetcher.remove(partition)

    def nudge(self) -> None:
        """Make the fetchers send requests for the partitions that have changed."""
        for fetcher in self._fetchers.values():
            fetcher.nudge()

    def redirect(self, brokers: Iterable[int]) -> None:
        """Make the fetchers of these leaders reconnect, because the leaders have registered again and may have another
        address."""
        for broker_id in brokers:
            fetcher = self._fetchers.get(broker_id)
            if fetcher is not None:
                fetcher.endpoint_changed()
