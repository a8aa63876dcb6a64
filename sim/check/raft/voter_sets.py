"""Check that the voter set changes by one voter at a time, only after the last change is committed, and as the log
records it (R16).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import Restarted, RoleSeen, VoterKeys, VotersSeen, VotersWritten


class Membership(Check):
    """Check of voter sets. The content of a VotersRecord is read from the disks. Without a record the voter set is the
    configured one (`configured`: its ids), or that of a snapshot on the node's disk. A node with neither has no voter
    set.

    A VotersRecord that changes no voter's key (it adds an address, or copies the first voters into the log) may be
    appended before any record of its leader's epoch is committed."""

    id: ClassVar[str] = "R16"
    statement: ClassVar[str] = (
        "Voter sets change by one voter at a time, after the last change is committed, and as the log records."
    )

    def __init__(self, configured: frozenset[int]) -> None:
        super().__init__()
        self.added = 0
        """Number of voters that leaders have added."""
        self._configured = configured
        self._of: dict[int, VotersSeen] = {}
        self._records: dict[tuple[int, int], VoterKeys] = {}
        self._in_snapshots: set[tuple[int, VoterKeys]] = set()

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            VotersSeen: self.voters,
            VotersWritten: self.written,
            RoleSeen: self.role,
            Restarted: self.restarted,
        }

    def restarted(self, seen: Restarted) -> None:
        self._of.pop(seen.node, None)

    def written(self, seen: VotersWritten) -> None:
        if seen.record_offset < 0:
            self._in_snapshots.add((seen.node, seen.voters))
        else:
            self._compare(seen)

    def _compare(self, seen: VotersSeen | VotersWritten) -> None:
        known = self._records.setdefault((seen.record_offset, seen.record_epoch), seen.voters)
        if known != seen.voters:
            self.fail(
                "one record has two voter sets", node=seen.node, offset=seen.record_offset, sets=(known, seen.voters)
            )

    def voters(self, seen: VotersSeen) -> None:
        before = self._of.get(seen.node)
        self._of[seen.node] = seen
        if seen.record_offset < 0:
            if not self._is_known_without_a_record(seen):
                self.fail("a voter set without a record is not the configured one", node=seen.node, voters=seen.voters)
            return
        self.count()
        self._compare(seen)
        if seen.record_offset >= seen.log_end_offset:
            self.fail("a voter set is in force whose record was truncated", node=seen.node, offset=seen.record_offset)
        if before is not None and seen.is_leader and before.epoch == seen.epoch == seen.record_epoch:
            self._appended(before, seen)

    def _is_known_without_a_record(self, seen: VotersSeen) -> bool:
        if not seen.voters:
            return not seen.is_leader
        is_configured = all(not directory for _, directory in seen.voters)
        if is_configured:
            return self._configured == {node for node, _ in seen.voters}
        return (seen.node, seen.voters) in self._in_snapshots

    def _appended(self, before: VotersSeen, seen: VotersSeen) -> None:
        """Check a VotersRecord that this leader has appended since its last observation."""
        changed = {*before.voters} ^ {*seen.voters}
        if seen.record_offset <= before.record_offset or not changed:
            return
        self.added += not changed <= {*before.voters}
        if len(changed) > 1:
            self.fail("more than one voter changed at once", leader=seen.node, sets=(before.voters, seen.voters))
        if seen.committed <= max(before.record_offset, seen.leads_since):
            self.fail(
                "a change came before the last one, or a record of the epoch, was committed",
                leader=seen.node,
                offset=seen.record_offset,
                committed=seen.committed,
                last_change=before.record_offset,
                epoch_start=seen.leads_since,
            )

    def role(self, seen: RoleSeen) -> None:
        """Check that a leader that was removed as a voter leads only until its removal is committed."""
        known = self._of.get(seen.node)
        if known is None or not seen.is_leader or not any(key for _, key in known.voters):
            return
        if seen.node not in {node for node, _ in known.voters} and seen.high_watermark > known.record_offset:
            self.fail(
                "a leader that was removed leads on", leader=seen.node, epoch=seen.epoch, offset=known.record_offset
            )
