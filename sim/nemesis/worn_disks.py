"""Disks that wear out, carried out on a simulated cluster: bytes that rot in a partition's log, or that were meant for
another place of it, and reads that fail.

What the cluster must stand: somebody else in sync holds the rotten batch whole, and no other replica lacks anything.
Then nobody takes rotten bytes for good, nothing is lost, and whoever reads gets everything from the others. In the end
somebody does what the log says: the file is restored, or the folder is taken away while the broker is down, so that the
log is replicated anew. Changed are bytes that a CRC covers, the CRC, the magic and the length: nothing in the format
covers a batch's base offset and leader epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kraft.sim.check.observations import TopicPartition
from kraft.sim.cluster.chronicle import FaultWindow
from kraft.sim.cluster.disk_eye import StoredBatch
from kraft.sim.cluster.shape import host_name
from kraft.sim.nemesis.faults import Nemesis
from kraft.sim.nemesis.plan import MISDIRECTED, TOPIC, Fault
from kraft.sim.world.chance import NamedRandom
from kraft.sim.world.filesystem import Inode

BYTES_MAX = 3
HEADER_ONE_IN = 4
"""One rot in so many hits the fields before the CRC, the others what it covers."""
HEADER_FIELDS = (*range(8, 12), *range(16, 21))
"""Batch length, magic and CRC."""
CRC_COVERS = 21
MEND_WAIT_MS = 5_000


@dataclass(frozen=True, slots=True)
class Rot:
    """Bytes of a replica's log that changed: position → as it is now. What stands before their batch ends at offset
    `end_before`, and the batch itself at `next_offset`."""

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
        """As it was, where the rot still is: the file may have been cut meanwhile, and written again."""
        for position in self.changes:
            self.inode.restore(position)


class WornDisks:
    """Carries out what it is asked for beside the nemesis's crashes."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._cluster = nemesis.cluster
        self._damage = nemesis.cluster.watch.suite.damage

    def find(self, fault: Fault) -> Rot | None:
        """What would rot now; None if the cluster could not stand it, or there is nothing."""
        cluster, node = self._cluster, fault.node
        is_here = node in cluster.shape.broker_ids and cluster.is_running(node) and node not in cluster.ailing
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
        return Rot(node, log, batch.inode, batch.end_before, batch.next_offset, changes)

    def _logs(self, node: int) -> Iterator[TopicPartition]:
        """The logs of this broker that another replica has whole, and is in sync."""
        cluster = self._cluster
        for topic in cluster.image.topics:
            label = cluster.watch.labels.of(topic.topic_id, topic.name)
            for index, state in topic.partitions():
                others = (member for member in state.isr if member != node)
                if node in state.replicas and any(map(self._is_complete, others)):
                    yield label, index

    def _is_complete(self, broker: int) -> bool:
        """Whether a broker in sync will be so also when its present life is registered: it is already. Otherwise the
        rotten replica may be the last one that is known to be complete."""
        return self._cluster.is_registered(broker) and broker not in self._cluster.ailing

    def _leads(self, node: int, log: TopicPartition) -> bool:
        topic = self._cluster.image.topics.get(log[0])
        state = None if topic is None else topic.find(log[1])
        return state is not None and state.leader == node

    def _batches(self, node: int, log: TopicPartition) -> Iterator[StoredBatch]:
        """What is committed of it, and can be no torn end."""
        committed = self._cluster.watch.suite.partitions.committed.get(log, {})
        return (batch for batch in self._cluster.watch.stored_batches(node, log) if batch.next_offset in committed)

    def begin(self, rot: Rot) -> None:
        """From here on the replica is damaged, and excused for what it logs."""
        rot.set_in()
        self._damage.rotten(rot.node, rot.log, rot.end_before, rot.next_offset)
        self._cluster.rotten.add(rot.node)

    def times_shown(self, node: int, log: TopicPartition | None = None) -> int:
        """How often the wear has shown so far: the broker logged an error or stopped for it, or a reader refused what
        stands in the log."""
        shown = self._cluster.report.excused[host_name(node)]
        return shown if log is None else shown + self._cluster.refused[log]

    async def mend(self, rot: Rot, fault: Fault) -> list[FaultWindow]:
        """`fault.amount` 1: replicate the log anew, if the cluster can do without this replica; else restore the file.
        The broker is started anew: it may have ended the replica."""
        nemesis, cluster, node = self._nemesis, self._cluster, rot.node
        await cluster.wait_until(lambda: nemesis.may_crash(node), MEND_WAIT_MS)
        if nemesis.may_crash(node):
            takes_away = bool(fault.amount) and rot.log in self._logs(node)

            def while_down() -> None:
                if takes_away:
                    cluster.take_away(node, rot.log)
                self._end(rot)

            note = f", its {rot.log[0]}-{rot.log[1]} is {'taken away' if takes_away else 'restored'} meanwhile"
            crash = nemesis.crash(
                node, fault.kind, lose_power=False, back_ms=fault.back_ms, while_down=while_down, note=note
            )
            return [await crash]
        self._end(rot)
        if cluster.is_running(node):
            cluster.hampered.add(node)  # it is started anew when everything is healed
        return []

    def _end(self, rot: Rot) -> None:
        rot.restore()
        self._damage.mended(rot.node, rot.log)
        self._cluster.rotten.discard(rot.node)


def _changes(batch: StoredBatch, random: NamedRandom) -> dict[int, int]:
    """One to three bytes of the batch, each of them another one."""
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
    """What was written as another batch, from its begin, lands in this one, up to its end at most: enough of it to have
    the CRC of that one, for what stands before may be zeros here and there."""
    data = batch.inode.data
    at = batch.start + CRC_COVERS + random.below(batch.end - batch.start - 2 * CRC_COVERS)
    landed = data[other.start : min(other.end, other.start + batch.end - at)]
    return {at + index: byte for index, byte in enumerate(landed) if byte != data[at + index]}
