"""The partitions that a group has assigned to this consumer: start and stop reading them, and call the application's
listener.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kraft.client.commits import Commits
from kraft.client.core.assigned import Assignment
from kraft.client.core.configs import ConsumerConfig
from kraft.client.core.records import TopicPartition
from kraft.client.rebalancing import PollGate, RebalanceListener


class OwnedPartitions:
    """The partitions that a member owns. `changed()` is called when they have changed, and `failed(error)` with an
    exception that the listener has raised."""

    def __init__(
        self,
        config: ConsumerConfig,
        assignment: Assignment,
        commits: Commits,
        listener: RebalanceListener,
        changed: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.listener = listener
        self.poll_gate = PollGate(changed)
        self.is_lost = False
        """Whether the partitions may already belong to other members."""
        self.failed = failed
        self._config = config
        self._assignment = assignment
        self._commits = commits
        self._changed = changed

    @property
    def all(self) -> frozenset[TopicPartition]:
        return frozenset(self._assignment.partitions)

    def lose(self) -> None:
        """Stop returning records, because the partitions may already belong to other members."""
        self.is_lost = True
        if self._assignment.partitions:
            self.poll_gate.request_hold()

    def replace(self, partitions: frozenset[TopicPartition]) -> None:
        """Read exactly these partitions."""
        self._assignment.replace(sorted(partitions))
        self._changed()

    async def revoke(self, revoked: frozenset[TopicPartition], *, commit_ms: float | None = None) -> None:
        """Commit, call the listener, and stop reading these partitions. The commit may be the first request by which
        the member learns that it was expelled. It has then lost all its partitions."""
        if self._config.enable_auto_commit and not self.is_lost:
            await self._commits.commit_consumed(timeout_ms=commit_ms)
        owned = self.all
        if self.is_lost:
            self.replace(frozenset())
            await self._call(self.listener.on_partitions_lost, owned)
        else:
            await self._call(self.listener.on_partitions_revoked, revoked)
            self.replace(owned - revoked)

    async def assign(self, partitions: frozenset[TopicPartition], added: frozenset[TopicPartition]) -> None:
        """Read exactly these partitions, of which `added` are new, and call the listener."""
        self.replace(partitions)
        await self._call(self.listener.on_partitions_assigned, added)
        self._changed()

    async def _call(
        self, callback: Callable[[frozenset[TopicPartition]], Awaitable[None]], partitions: frozenset[TopicPartition]
    ) -> None:
        """Call the listener. If it raises an exception (such as CommitFailed), report it to the application; the
        membership continues."""
        try:
            await callback(partitions)
        except Exception as failure:  # noqa: BLE001 - `poll` raises it
            self.failed(failure)
