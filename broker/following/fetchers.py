"""Fetchers: one LeaderFetcher for each broker that this one follows.

Invariant: fetching is restarted only in a new leader epoch, and while no call cuts the log.
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
    """Iterating meets the fetcher of each broker that was ever followed. All plain calls."""

    def __init__(self, loop: Loop, node_id: int, make: Callable[[int], LeaderFetcher]) -> None:
        """`make(leader_id)` makes the fetcher of a leader."""
        self._loop = loop
        self._node_id = node_id
        self._make = make
        self._fetchers: dict[int, LeaderFetcher] = {}

    def __iter__(self) -> Iterator[LeaderFetcher]:
        return iter(list(self._fetchers.values()))

    def begin(self, partition: Partition) -> None:
        """Fetch from the partition's leader, if there is one and the log is open and not being cut; else that comes
        later."""
        state = partition.state
        if state is None or state.leader in (NO_LEADER, self._node_id):
            return
        if partition.log is None and not partition.is_blank:
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
        """Fetch the partition from no broker: a late answer finds nothing."""
        for fetcher in self._fetchers.values():
            fetcher.remove(partition)

    def nudge(self) -> None:
        """Send the leaders what has changed."""
        for fetcher in self._fetchers.values():
            fetcher.nudge()

    def redirect(self, brokers: Iterable[int]) -> None:
        """Have the fetchers of these brokers dial again: the brokers have registered again, perhaps elsewhere."""
        for broker_id in brokers:
            fetcher = self._fetchers.get(broker_id)
            if fetcher is not None:
                fetcher.endpoint_changed()
