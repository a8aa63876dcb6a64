"""AppendBudget: hold appends back while the budget of dirty bytes is used up, and run them when the budget has room
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop


class AppendBudget:
    """Holds appends back according to the budget of dirty bytes of `disk`. No public method is a coroutine."""

    def __init__(self, loop: Loop, open_logs: Callable[[], Iterable[Partition]]) -> None:
        self.disk = loop.disk
        self._loop = loop
        self._open_logs = open_logs
        self._is_waited_for = False

    def may_write(self, partition: Partition) -> bool:
        """Return whether the budget has room for a waiting append. If it has none, the append runs when there is room
        again."""
        if self.disk.dirty_budget_full:
            self.may_be_full(partition)
            return False
        return True

    def may_be_full(self, partition: Partition) -> None:
        """Handle a budget that may be full: run this partition's waiting appends when it has room. No effect if they do
        not wait for the budget. Writeback threads may already have made room."""
        if partition.appendable and not self._is_waited_for:
            self._is_waited_for = True
            self._loop.start_task(self._wait)

    async def _wait(self) -> None:
        await self.disk.wait_dirty_budget()
        self._is_waited_for = False
        for partition in self._open_logs():
            if partition.pending:
                partition.run_pending()
        self._loop.request_pass()
