"""Checks of what a metadata log may hold, lose and commit (R4 to R9, R11, R12 and R15).

A batch is recorded in `MetadataLedger` the first time that any replica's high watermark passes it, from that replica's
log, and never rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import (
    BatchWritten,
    ImagePublished,
    LogCut,
    NodeDown,
    Restarted,
    RoleSeen,
    SnapshotSeen,
    VoterKeys,
    VotersSeen,
    VotersWritten,
)
from kraft.sim.check.shadow import ShadowBatch, ShadowLog, Shadows


class MetadataLedger:
    """Committed batches of the metadata log by end offset, in order."""

    def __init__(self) -> None:
        self.batches: dict[int, tuple[int, int]] = {}
        self.end_offset = 0

    def commit(self, batch: ShadowBatch) -> tuple[int, int]:
        """Add the batch unless a batch with this end offset is known; return the (epoch, digest) that is committed
        there."""
        entry = self.batches.setdefault(batch.next_offset, (batch.epoch, batch.digest))
        self.end_offset = max(self.end_offset, batch.next_offset)
        return entry


class LeaderAppendsOnly(Check):
    """Check that a leader never truncates or rewrites its log in the epoch that it leads. Truncations count as input:
    at the front, which a leader may do, or at the end by a node that led a moment before."""

    id: ClassVar[str] = "R4"
    statement: ClassVar[str] = "A leader never truncates or rewrites its own log in its epoch."

    def __init__(self, shadows: Shadows) -> None:
        super().__init__()
        self._shadows = shadows
        self._leading: set[int] = set()
        self._led: set[int] = set()
        """Nodes that have led since the last truncation of their log."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {RoleSeen: self.role, LogCut: self.cut, NodeDown: self.down}

    def role(self, seen: RoleSeen) -> None:
        if seen.is_leader:
            self._leading.add(seen.node)
            self._led.add(seen.node)
        else:
            self._leading.discard(seen.node)

    def down(self, seen: NodeDown) -> None:
        self._leading.discard(seen.node)
        self._led.discard(seen.node)

    def cut(self, seen: LogCut) -> None:
        if seen.log is None and seen.node in self._led:
            self.count()
            self._led.intersection_update(self._leading)
        if seen.log is None and seen.node in self._leading:
            end = self._shadows.log(seen.node, None).end_offset
            if seen.end_offset < end:
                self.fail("a leader truncated its log", node=seen.node, end_before=end, end_after=seen.end_offset)


class LogMatching(Check):
    """Check that logs that hold the same (offset, epoch) are equal up to it. This is checked by induction: a batch
    (offset, epoch) has the same bytes and the same predecessor in every log.

    Exemption: after a power loss the disk of a node that is down may have gaps; it is not a log until recovery."""

    id: ClassVar[str] = "R5"
    statement: ClassVar[str] = "Logs that hold the same (offset, epoch) are equal up to it."

    def __init__(self, shadows: Shadows) -> None:
        super().__init__()
        self._shadows = shadows
        self._before: dict[tuple[int, int], tuple[int, tuple[int, int, int]]] = {}
        self._down: set[int] = set()

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {BatchWritten: self.written, NodeDown: self.down, Restarted: self.restarted}

    def down(self, seen: NodeDown) -> None:
        self._down.add(seen.node)

    def restarted(self, seen: Restarted) -> None:
        self._down.discard(seen.node)

    def written(self, seen: BatchWritten) -> None:
        if seen.log is not None or seen.node in self._down:
            return
        batch = self._shadows.log(seen.node, None).batches[-1]
        if batch.before is None:
            return
        key = (batch.next_offset, batch.epoch)
        first = self._before.get(key)
        if first is None:
            self._before[key] = (seen.node, batch.before)
            return
        self.count()
        if first[1] != batch.before:
            self.fail(
                "logs differ before the same (offset, epoch)",
                offset=batch.next_offset,
                epoch=batch.epoch,
                node=seen.node,
                before=batch.before,
                other_node=first[0],
                other_before=first[1],
            )


class LeaderCompleteness(Check):
    id: ClassVar[str] = "R6"
    statement: ClassVar[str] = "A new leader's log contains every committed record."

    def __init__(self, shadows: Shadows, ledger: MetadataLedger) -> None:
        super().__init__()
        self._shadows = shadows
        self._ledger = ledger
        self._seen: set[tuple[int, int]] = set()

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {RoleSeen: self.role}

    def role(self, seen: RoleSeen) -> None:
        if not seen.is_leader or (seen.node, seen.epoch) in self._seen:
            return
        self._seen.add((seen.node, seen.epoch))
        if not self._ledger.end_offset:
            return
        self.count()
        shadow = self._shadows.log(seen.node, None)
        if shadow.end_offset < self._ledger.end_offset:
            self.fail(
                "a leader lacks committed records",
                leader=seen.node,
                epoch=seen.epoch,
                log_end=shadow.end_offset,
                committed_end=self._ledger.end_offset,
            )
            return
        last = shadow.at_end(self._ledger.end_offset)
        committed = self._ledger.batches.get(self._ledger.end_offset)
        if last is not None and committed is not None and (last.epoch, last.digest) != committed:
            self.fail(
                "a leader holds another record than the committed one",
                leader=seen.node,
                epoch=seen.epoch,
                offset=last.next_offset,
                held=(last.epoch, last.digest),
                committed=committed,
            )


class StateMachineSafety(Check):
    """Check that each batch that a replica counts as committed equals the batch that was committed first at its offset.
    This check also records the committed batches, in `MetadataLedger`."""

    id: ClassVar[str] = "R7"
    statement: ClassVar[str] = "No replica commits another record at an offset than the one committed there first."

    def __init__(self, shadows: Shadows, ledger: MetadataLedger) -> None:
        super().__init__()
        self._shadows = shadows
        self._ledger = ledger
        self._upto: dict[int, int] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {RoleSeen: self.role, Restarted: self.restarted}

    def restarted(self, seen: Restarted) -> None:
        self._upto.pop(seen.node, None)

    def role(self, seen: RoleSeen) -> None:
        start = self._upto.get(seen.node, 0)
        if seen.high_watermark <= start:
            return
        own = self._shadows.log(seen.node, None)
        for batch in (own.of_leader if seen.is_leader else own.between)(start, seen.high_watermark):
            self.count()
            entry = self._ledger.commit(batch)
            if entry != (batch.epoch, batch.digest):
                self.fail(
                    "two records were committed at one offset",
                    offset=batch.next_offset,
                    node=seen.node,
                    held=(batch.epoch, batch.digest),
                    committed=entry,
                )
        self._upto[seen.node] = seen.high_watermark


class HighWatermarkSanity(Check):
    id: ClassVar[str] = "R8"
    statement: ClassVar[str] = "Per incarnation the high watermark never decreases and never passes the log end."

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[int, int], int] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {RoleSeen: self.role}

    def role(self, seen: RoleSeen) -> None:
        if seen.high_watermark < 0:
            return
        key = (seen.node, seen.incarnation)
        before = self._known.get(key, 0)
        if seen.high_watermark > before:
            self.count()
            self._known[key] = seen.high_watermark
        elif seen.high_watermark < before:
            self.fail("the high watermark went back", node=seen.node, before=before, after=seen.high_watermark)
        if seen.high_watermark > seen.log_end_offset:
            self.fail(
                "the high watermark passes the log end",
                node=seen.node,
                high_watermark=seen.high_watermark,
                log_end=seen.log_end_offset,
            )


class CommitRule(Check):
    """Check that a leader commits only with a record of its epoch that is durable on a majority of voters. The commit
    is recomputed from the disks, never from the leader's bookkeeping. `voters` is the configured set. It is valid until
    a leader uses the set of a record or a snapshot. Then the VotersRecord on the disks counts, and the check Membership
    (R16) decides whether the leader may use it. Records that a leader knew to be committed before its election were
    committed by its predecessors. A voter with a new disk counts with what was durable on the lost disk, because its
    acknowledgement may have been in flight. That is valid until the voter is removed from the set."""

    id: ClassVar[str] = "R9"
    statement: ClassVar[str] = "A leader commits only with a record of its epoch, durable on a majority of voters."

    def __init__(self, shadows: Shadows, voters: frozenset[int]) -> None:
        super().__init__()
        self._shadows = shadows
        self.voters = voters
        self._of_leader: dict[int, frozenset[int]] = {}
        self._records: dict[tuple[int, int], VoterKeys] = {}
        self._known: dict[int, int] = {}
        self._gone: dict[int, frozenset[tuple[int, int, int]]] = {}
        """Node → (end offset, epoch, digest) of the batches that were durable when it last went down as a voter."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            RoleSeen: self.role,
            NodeDown: self.down,
            Restarted: self.restarted,
            VotersSeen: self.voters_seen,
            VotersWritten: self.voters_written,
        }

    def voters_written(self, seen: VotersWritten) -> None:
        self._records.setdefault((seen.record_offset, seen.record_epoch), seen.voters)

    def voters_seen(self, seen: VotersSeen) -> None:
        """Record the leader's voter set: the latest set in the leader's log, committed or not."""
        if not seen.is_leader:
            return
        if seen.record_offset >= 0:
            keys = self._records.get((seen.record_offset, seen.record_epoch), seen.voters)
            self._of_leader[seen.node] = frozenset(node for node, _ in keys)
        elif any(directory for _, directory in seen.voters):
            self._of_leader[seen.node] = frozenset(node for node, _ in seen.voters)
        else:
            self._of_leader.pop(seen.node, None)
        voters = self._of_leader.get(seen.node, self.voters)
        self._gone = {node: held for node, held in self._gone.items() if node in voters}

    def down(self, seen: NodeDown) -> None:
        shadow = self._shadows.log(seen.node, None)
        is_voter = any(seen.node in voters for voters in (self.voters, *self._of_leader.values()))
        if is_voter and shadow.durable_end:
            held = shadow.between(shadow.start_offset, shadow.durable_end)
            self._gone[seen.node] = frozenset((batch.next_offset, batch.epoch, batch.digest) for batch in held)

    def restarted(self, seen: Restarted) -> None:
        self._known.pop(seen.node, None)
        if not seen.wiped:
            self._gone.pop(seen.node, None)

    def role(self, seen: RoleSeen) -> None:
        before = self._known.get(seen.node, 0)
        self._known[seen.node] = seen.high_watermark
        if not seen.is_leader or seen.high_watermark <= before:
            return
        self.count()
        newly = self._shadows.log(seen.node, None).of_leader(before, seen.high_watermark)
        last = newly[-1] if newly and newly[-1].next_offset == seen.high_watermark else None
        if last is None or last.epoch != seen.epoch:
            self.fail(
                "committed without a record of the leader's epoch",
                leader=seen.node,
                epoch=seen.epoch,
                high_watermark=seen.high_watermark,
                last_epoch=None if last is None else last.epoch,
            )
        voters = self._of_leader.get(seen.node, self.voters)
        durable = {v: self._shadows.log(v, None).durable_end for v in sorted(voters)}
        entry = None if last is None else (last.next_offset, last.epoch, last.digest)
        holding = [v for v, end in durable.items() if end >= seen.high_watermark or entry in self._gone.get(v, ())]
        if 2 * len(holding) <= len(voters):
            self.fail(
                "committed without a durable majority",
                leader=seen.node,
                epoch=seen.epoch,
                high_watermark=seen.high_watermark,
                durable_ends=durable,
            )


class CommittedRecordsAreKept(Check):
    """Check that no replica truncates a committed record. Deleting a prefix below a snapshot is not truncation. Bytes
    that a disk loses while its node is down are an injected fault. An observer, which does not sync and acknowledges
    nothing, may lose any record. A voter must restart with all committed records that were on its disk, in its log or
    in a snapshot, unless it has a new disk."""

    id: ClassVar[str] = "R11"
    statement: ClassVar[str] = "No replica truncates a committed record."

    def __init__(self, shadows: Shadows, ledger: MetadataLedger) -> None:
        super().__init__()
        self._shadows = shadows
        self._ledger = ledger
        self._down: set[int] = set()
        self._voters: set[int] = set()
        """Nodes that were voters when last observed."""
        self._kept: dict[int, int] = {}
        """Voter that went down and has not been observed again → end of the committed log on its disk."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {LogCut: self.cut, NodeDown: self.down, Restarted: self.restarted, RoleSeen: self.role}

    def down(self, seen: NodeDown) -> None:
        self._down.add(seen.node)
        if seen.node in self._voters:
            self._kept.setdefault(seen.node, self._committed_end(self._shadows.log(seen.node, None)))

    def _committed_end(self, shadow: ShadowLog) -> int:
        """Return the end of the committed prefix on this disk. Batches are compared, because a replaced leader's
        uncommitted tail may be as long as what its successors have committed at the same offsets."""
        for batch in reversed(shadow.between(shadow.start_offset, shadow.durable_end)):
            if self._ledger.batches.get(batch.next_offset) == (batch.epoch, batch.digest):
                return batch.next_offset
        return min(shadow.start_offset, shadow.durable_end, self._ledger.end_offset)

    def restarted(self, seen: Restarted) -> None:
        self._down.discard(seen.node)
        if seen.wiped:
            self._kept.pop(seen.node, None)

    def role(self, seen: RoleSeen) -> None:
        if seen.is_voter:
            self._voters.add(seen.node)
        else:
            self._voters.discard(seen.node)
        kept = self._kept.pop(seen.node, 0)
        if kept:
            self.count()
        if seen.log_end_offset < kept:
            self.fail(
                "a voter came back without what was committed and on its disk",
                node=seen.node,
                log_end=seen.log_end_offset,
                kept=kept,
            )

    def cut(self, seen: LogCut) -> None:
        if seen.log is not None or seen.node in self._down:
            return
        shadow = self._shadows.log(seen.node, None)
        for batch in shadow.between(seen.end_offset, shadow.end_offset):
            self.count()
            if batch.next_offset <= shadow.durable_end and self._ledger.batches.get(batch.next_offset) == (
                batch.epoch,
                batch.digest,
            ):
                self.fail(
                    "a committed record was truncated", node=seen.node, offset=batch.next_offset, epoch=batch.epoch
                )


class SnapshotSoundness(Check):
    """Check that a snapshot holds exactly the records committed below its offset. Its digest must be that of the image
    published at the same offset, whether the snapshot was written or fetched. A disk is observed before the high
    watermark, so a snapshot is checked after its node's role has been observed."""

    id: ClassVar[str] = "R15"
    statement: ClassVar[str] = "A snapshot holds exactly the records committed below its offset."

    def __init__(self, ledger: MetadataLedger) -> None:
        super().__init__()
        self._ledger = ledger
        self._published: dict[int, str] = {}
        self._early: dict[int, list[SnapshotSeen]] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {SnapshotSeen: self.snapshot, ImagePublished: self.published, RoleSeen: self.role}

    def published(self, seen: ImagePublished) -> None:
        self._published.setdefault(seen.offset, seen.digest)

    def snapshot(self, seen: SnapshotSeen) -> None:
        if seen.end_offset > self._ledger.end_offset:
            self._early.setdefault(seen.node, []).append(seen)
        else:
            self._judge(seen)

    def role(self, seen: RoleSeen) -> None:
        for snapshot in self._early.pop(seen.node, ()):
            self._judge(snapshot)

    def finish(self) -> None:
        for early in self._early.values():
            for snapshot in early:
                self._judge(snapshot)

    def _judge(self, seen: SnapshotSeen) -> None:
        self.count()
        if seen.end_offset > self._ledger.end_offset:
            self.fail("a snapshot of what is not committed", node=seen.node, end_offset=seen.end_offset)
        elif self._ledger.batches.get(seen.end_offset, (seen.epoch, 0))[0] != seen.epoch:
            self.fail("a snapshot names another epoch than the log", node=seen.node, end_offset=seen.end_offset)
        elif self._published.get(seen.end_offset, seen.digest) != seen.digest:
            self.fail("a snapshot is not the image of its offset", node=seen.node, end_offset=seen.end_offset)


class OneRecordPerName(Check):
    """Check that (epoch, offset) names the same record permanently, also across a crash of the leader that wrote the
    record. All records that were ever written count."""

    id: ClassVar[str] = "R12"
    statement: ClassVar[str] = "(epoch, offset) names the same record permanently."

    def __init__(self) -> None:
        super().__init__()
        self._named: dict[tuple[int, int], tuple[int, int]] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {BatchWritten: self.written}

    def written(self, seen: BatchWritten) -> None:
        if seen.log is not None:
            return
        self.count()
        first = self._named.setdefault((seen.epoch, seen.base_offset), (seen.digest, seen.node))
        if first[0] != seen.digest:
            self.fail(
                "one (epoch, offset) names two records",
                epoch=seen.epoch,
                offset=seen.base_offset,
                first_node=first[1],
                second_node=seen.node,
            )
