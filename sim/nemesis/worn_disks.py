"""Carries out the faults of worn-out disks on a simulated cluster: corrupt bytes in a partition's log, misdirected
writes, failing reads.

The cluster must tolerate them only if another in-sync replica has the batch intact, and no in-sync replica lacks
anything. Then no replica keeps corrupt bytes permanently, nothing is lost, and readers get all records from other
replicas. In the end the log is repaired as an operator would: the file is restored, or the folder is removed while the
broker is down, so that the log is replicated again.

Only bytes that a CRC covers, the CRC, the magic and the length are changed: nothing in the format covers a batch's base
offset and leader epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kraft.sim.check.observations import TopicPartition
from kraft.sim.cluster.chronicle import ObservedFault
from kraft.sim.cluster.disk_observer import StoredBatch
from kraft.sim.cluster.shape import host_name
from kraft.sim.nemesis.faults import Nemesis
from kraft.sim.nemesis.plan import MISDIRECTED, TOPIC, Fault
from kraft.sim.world.chance import NamedRandom
from kraft.sim.world.filesystem import Inode

BYTES_MAX = 3
HEADER_ONE_IN = 4
"""One corruption in this many affects the fields before the CRC instead of the bytes that the CRC covers."""
HEADER_FIELDS = (*range(8, 12), *range(16, 21))
"""Positions of the fields that may be corrupted besides the bytes that the CRC covers: batch length, magic and CRC."""
CRC_COVERS = 21
MEND_WAIT_MS = 5_000


@dataclass(frozen=True, slots=True)
class Corruption:
    """Corrupt bytes in a replica's log: position → present value. The batches before the corrupt batch end at offset
    `end_before`, and the corrupt batch at `next_offset`."""

    node: int
    log: TopicPartition
    inode: Inode
    end_before: int
    next_offset: int
    changes: dict[int, int]

    def set_in(self) -> None:
        for position, byte in self.changes.items():
            self.inode.change(position, byte)

    def restore(self) -> None:
        """Restore the bytes that are still corrupt: the file may have been truncated and rewritten meanwhile."""
        for position in self.changes:
            self.inode.restore(position)


class WornDisks:
    """Carries out the faults of worn-out disks: corrupt bytes, misdirected writes, failing reads. Crashes are carried
    out by `Nemesis`."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._cluster = nemesis.cluster
        self._damage = nemesis.cluster.watch.suite.damage

    def find(self, fault: Fault) -> Corruption | None:
        """Choose bytes to corrupt now. None if there are no such bytes, or the cluster need not tolerate their
        corruption."""
        cluster, node = self._cluster, fault.node
        is_here = node in cluster.shape.broker_ids and cluster.is_running(node) and node not in cluster.failing_disks
        if not is_here or node in self._nemesis.stopping or self._damage.anyone():
            return None
        random = NamedRandom(cluster.world.seed, f"{fault.kind} {fault.pick}")
        found = [(log, batch) for log in self._logs(node) for batch in self._batches(node, log)]
        led = [(log, batch) for log, batch in found if log[0] == TOPIC and self._leads(node, log)]
        found = led if led and random.below(2) else found
        if not found:
            return None
        log, batch = found[random.below(len(found))]
        if fault.kind == MISDIRECTED:
            others = [other for place, other in found if place == log and other.inode is batch.inode]
            changes = _misdirected(batch, others[random.below(len(others))], random)
        else:
            changes = _changes(batch, random)
        return Corruption(node, log, batch.inode, batch.end_before, batch.next_offset, changes)

    def _logs(self, node: int) -> Iterator[TopicPartition]:
        """Return the logs of this broker of which another in-sync replica has an intact copy."""
        cluster = self._cluster
        for topic in cluster.image.topics:
            label = cluster.watch.labels.of(topic.topic_id, topic.name)
            for index, state in topic.partitions():
                others = (member for member in state.isr if member != node)
                if node in state.replicas and any(map(self._is_complete, others)):
                    yield label, index

    def _is_complete(self, broker: int) -> bool:
        """Return whether an in-sync broker will stay in sync when its present incarnation is registered, which is so if
        it is registered already. Otherwise the corrupt replica may be the last one that is known to be complete."""
        return self._cluster.is_registered(broker) and broker not in self._cluster.failing_disks

    def _leads(self, node: int, log: TopicPartition) -> bool:
        topic = self._cluster.image.topics.get(log[0])
        state = None if topic is None else topic.find(log[1])
        return state is not None and state.leader == node

    def _batches(self, node: int, log: TopicPartition) -> Iterator[StoredBatch]:
        """Return the committed batches of the log that recovery cannot mistake for an incomplete batch at the end."""
        committed = self._cluster.watch.suite.partitions.committed.get(log, {})
        return (batch for batch in self._cluster.watch.stored_batches(node, log) if batch.next_offset in committed)

    def begin(self, corruption: Corruption) -> None:
        """Record that the replica is damaged from now on, so that its errors are excused."""
        corruption.set_in()
        self._damage.corrupt(corruption.node, corruption.log, corruption.end_before, corruption.next_offset)
        self._cluster.corrupt.add(corruption.node)

    def times_shown(self, node: int, log: TopicPartition | None = None) -> int:
        """Return how often the damage was noticed so far: the broker logged an error or stopped because of it, or a
        reader rejected a batch."""
        shown = self._cluster.report.excused[host_name(node)]
        return shown if log is None else shown + self._cluster.refused[log]

    async def mend(self, corruption: Corruption, fault: Fault) -> list[ObservedFault]:
        """Repair the log. With `fault.amount` 1 it is replicated again, if the cluster can do without this replica;
        otherwise the file is restored. Then restart the broker, which may have taken the replica offline."""
        nemesis, cluster, node = self._nemesis, self._cluster, corruption.node
        await cluster.wait_until(lambda: nemesis.may_crash(node), MEND_WAIT_MS)
        if nemesis.may_crash(node):
            takes_away = bool(fault.amount) and corruption.log in self._logs(node)

            def while_down() -> None:
                if takes_away:
                    cluster.delete_folder(node, corruption.log)
                self._end(corruption)

            topic, index = corruption.log
            note = f", its {topic}-{index} is {'removed' if takes_away else 'restored'} meanwhile"
            crash = nemesis.crash(
                node, fault.kind, lose_power=False, back_ms=fault.back_ms, while_down=while_down, note=note
            )
            return [await crash]
        self._end(corruption)
        if cluster.is_running(node):
            cluster.missing_directory.add(node)  # it is restarted when everything is healed
        return []

    def _end(self, corruption: Corruption) -> None:
        corruption.restore()
        self._damage.mended(corruption.node, corruption.log)
        self._cluster.corrupt.discard(corruption.node)


def _changes(batch: StoredBatch, random: NamedRandom) -> dict[int, int]:
    """Change one to three bytes of the batch."""
    data = batch.inode.data
    changes: dict[int, int] = {}
    is_header = random.one_in(HEADER_ONE_IN)
    for _ in range(1 + random.below(BYTES_MAX)):
        if is_header:
            at = HEADER_FIELDS[random.below(len(HEADER_FIELDS))]
        else:
            at = CRC_COVERS + random.below(batch.end - batch.start - CRC_COVERS)
        changes[batch.start + at] = data[batch.start + at] ^ (1 + random.below(255))
    return changes


def _misdirected(batch: StoredBatch, other: StoredBatch, random: NamedRandom) -> dict[int, int]:
    """Write the bytes of another batch over this one, up to its end at most. At least its CRC is replaced, because the
    bytes before it may be zeros in both."""
    data = batch.inode.data
    at = batch.start + CRC_COVERS + random.below(batch.end - batch.start - 2 * CRC_COVERS)
    landed = data[other.start : min(other.end, other.start + batch.end - at)]
    return {at + index: byte for index, byte in enumerate(landed) if byte != data[at + index]}
