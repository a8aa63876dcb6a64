"""Checks of a quiescent run (D6, D7, D12, D13 and T3): each replica's state must match its log, and a restart of all
nodes must change nothing.

Each replica must be one that the metadata assign to its broker (M10), and no request may be pending at a broker without
clients (N3).

The log is read from the simulated disk. A replica's state must follow from it: the leader epochs from those of the
batches, and the producers' states from all batches in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kraft.broker.partition.partition import Partition
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import host_name
from kraft.sim.world.filesystem import Directory, Inode
from kraft.sim.world.host import Host
from kraft.storage.indexes.offset_index import ENTRY as INDEX_ENTRY
from kraft.storage.log import Log
from kraft.storage.markers import Marker, read_marker
from kraft.storage.producers.producer_state import ProducerStates
from kraft.wire.records import BatchHeader, iter_headers

STOP_MS_MAX = 5_000
UP_MS_MAX = 30_000
FETCHES_UNDER_WAY = 2
"""Maximum number of fetches that a follower may have in flight to one leader."""
LEFT_BY_READERS_MAX = 6
"""Maximum number of fetches that stay pending although their readers' connections have just ended; they stay until
their maximum wait time is over."""
SEGMENT_SUFFIX, INDEX_SUFFIX = ".log", ".index"
FOLLOWED_MS_MAX = 2_000

Content = tuple[tuple[int, int, int], ...]
"""Content of a log: (end offset, epoch, digest) of each batch."""
Contents = dict[tuple[int, tuple[str, int]], Content]


class QuiescentChecks:
    """Checks of a cluster without writes. Call `run` once, after all writes have ended, or `compare` at any time
    without writes."""

    def __init__(self, cluster: SimCluster) -> None:
        self.compared = 0
        """Number of non-empty logs that were compared with the state of their replicas."""
        self.with_producers = 0
        """Number of compared logs that idempotent producers have written to."""
        self.indexed = 0
        """Number of offset index entries that were compared with their logs."""
        self.parked = 0
        """Number of operations that were pending at idle brokers."""
        self.hosted = 0
        """Number of replicas that were looked up in the metadata."""
        self._cluster = cluster
        self._world = cluster.world
        self._random = cluster.world.random.stream("last look")

    async def run(self) -> None:
        cluster = self._cluster
        await self._compare_at_rest("at the end")
        before = self._contents()
        await self._restart_all()
        if not await cluster.wait_until(lambda: not cluster.trouble(), UP_MS_MAX):
            cluster.report.fail("L5", "the cluster did not come back", trouble=cluster.trouble())
            return
        after = self._contents()
        for (node, log), content in before.items():
            held, begin = after.get((node, log), ()), self._begin_of(log)
            if _behind(begin, held) != _behind(begin, content):
                cluster.report.fail(
                    "D12",
                    "a log differs after the restart of its node",
                    partition=log,
                    node=node,
                    end_before=content[-1][0] if content else 0,
                    end_after=held[-1][0] if held else 0,
                )
        await self._compare_at_rest("after a start")

    async def _compare_at_rest(self, when: str) -> None:
        """Wait, then compare. Waiting is needed because a replaced leader drops its own epoch only after it has queried
        its successor."""
        await self._cluster.wait_until(lambda: not self._remembers_unwritten_epochs(), FOLLOWED_MS_MAX)
        self.compare(when)

    def _remembers_unwritten_epochs(self) -> bool:
        return any(
            start >= partition.log.log_end_offset
            for _, partition in self._hosted()
            if partition.log is not None
            for _, start in self._known_epochs(partition, partition.log)
        )

    async def _restart_all(self) -> None:
        """Kill some controllers and one broker, stop the other nodes cleanly, and start all again; no host loses power.
        If all brokers were killed, no replica could be known to be complete (KIP-966)."""
        cluster = self._cluster
        killed = [node for node in cluster.shape.controller_ids if self._random.below(2)]
        brokers = cluster.shape.broker_ids
        victim = brokers[self._random.below(len(brokers))]
        cluster.crash(victim, lose_power=False, is_noticed=False)
        await cluster.wait_until(lambda: not cluster.image.is_alive(victim), UP_MS_MAX)
        stopped = [node for node in (*brokers, *cluster.shape.controller_ids) if node not in (*killed, victim)]
        for node in stopped:
            await cluster.stop(node, timeout_ms=STOP_MS_MAX)
        for node in killed:
            cluster.crash(node, lose_power=False, is_noticed=False)
        for node in cluster.shape.node_ids:
            cluster.start(node)

    def _begin_of(self, log: tuple[str, int]) -> int:
        """Return the leader's log start offset. Each replica may delete records below it at a different time."""
        cluster, (label, index) = self._cluster, log
        for topic in cluster.image.topics:
            if cluster.watch.labels.of(topic.topic_id, topic.name) == label:
                return cluster.begin_of(topic.partition(index).leader, topic.name, index)
        return 0

    def _contents(self) -> Contents:
        cluster = self._cluster
        return {
            (broker, log): cluster.watch.suite.shadows.log(broker, log).content()
            for topic in cluster.image.topics
            for index, state in topic.partitions()
            for log in [(cluster.watch.labels.of(topic.topic_id, topic.name), index)]
            for broker in state.replicas
        }

    # logs and the replicas' state

    def compare(self, when: str) -> None:
        """Compare the state of all replicas with their logs now; `when` appears in the evidence."""
        for broker, partition in self._hosted():
            self._look_for(broker, partition, when)
            if partition.log is not None:
                self._compare_one(broker, partition, partition.log, when)
        for broker in self._cluster.shape.broker_ids:
            self._observe_queues(broker, when)

    def _hosted(self) -> Iterator[tuple[int, Partition]]:
        """Yield each replica with its broker."""
        for broker in self._cluster.shape.broker_ids:
            observer = self._cluster.watch.nodes.get(broker)
            node = None if observer is None else observer.node.broker
            for partition in () if node is None else node.broker.replicas.hosted:
                yield broker, partition

    def _observe_queues(self, broker: int, when: str) -> None:
        """Check pending requests while no client sends any. Only fetches of other brokers, and fetches of readers whose
        connections have just ended, may remain."""
        observer = self._cluster.watch.nodes.get(broker)
        if observer is None or observer.node.broker is None:
            return
        parked, memory = len(observer.node.broker.broker.replicas.deadlines), observer.node.gates.memory
        self.parked += parked
        parked_max = FETCHES_UNDER_WAY * (len(self._cluster.shape.broker_ids) - 1) + LEFT_BY_READERS_MAX
        if parked > parked_max or memory.has_waiters:
            self._cluster.report.fail(
                "N3",
                "a broker at rest has more requests waiting than its followers send",
                node=broker,
                when=when,
                parked=parked,
                parked_max=parked_max,
                waits_for_memory=memory.has_waiters,
            )

    def _look_for(self, broker: int, partition: Partition, when: str) -> None:
        self.hosted += 1
        topic = self._cluster.image.topics.get_by_id(partition.topic_id)
        state = None if topic is None else topic.find(partition.index)
        if state is None or broker not in state.replicas:
            topic_id = str(partition.topic_id)
            self._fail("M10", "a broker has a replica that is not its own", broker, partition, when, topic_id=topic_id)

    def _compare_one(self, broker: int, partition: Partition, log: Log, when: str) -> None:
        folder = _folder(self._world.host(host_name(broker)), log.directory)
        files = dict(_files(folder, SEGMENT_SUFFIX))
        batches = {name: dict(iter_headers(file.data)) for name, file in files.items()}
        headers = [header for segment in batches.values() for header in segment.values()]
        markers = {
            header.base_offset: read_marker(files[name].data, position, header)
            for name, segment in batches.items()
            for position, header in segment.items()
            if header.is_control
        }
        self.compared += bool(headers)
        due = _epochs(headers, log.log_start_offset)
        known = self._known_epochs(partition, log)
        if due != known:
            self._fail("D7", "leader epochs are not those of the log", broker, partition, when, due=due, known=known)
        end = headers[-1].next_offset if headers else log.log_start_offset
        if end != log.log_end_offset:
            self._fail("D6", "a log ends elsewhere", broker, partition, when, due=end, known=log.log_end_offset)
        if log.log_start_offset == 0:
            self._compare_producers(broker, partition, log, headers, markers, when)
        for name, file in _files(folder, INDEX_SUFFIX):
            self._compare_index(broker, partition, (name, file.data), batches.get(name, {}), when)

    def _known_epochs(self, partition: Partition, log: Log) -> list[tuple[int, int]]:
        """Return the epochs in the replica's epoch cache that must have records. An epoch that begins at the log end is
        left out in two cases: this replica leads in it, or its log or its leader's log begins at that offset, so that
        the leader does not make it truncate."""
        end, entries = log.log_end_offset, log.epochs.entries
        own = -1 if partition.leader is None else partition.leader.leader_epoch
        state = partition.state
        begin = 0 if state is None else self._cluster.begin_of(state.leader, partition.topic, partition.index)
        is_excused = (
            bool(entries) and entries[-1][1] == end and (entries[-1][0] == own or end in (log.log_start_offset, begin))
        )
        return list(entries[:-1] if is_excused else entries)

    def _compare_producers(
        self,
        broker: int,
        partition: Partition,
        log: Log,
        headers: list[BatchHeader],
        markers: Mapping[int, Marker | None],
        when: str,
    ) -> None:
        """Compare the producers' states of a log with its batches. Logs that have lost a prefix are skipped, because a
        replica may remember deleted batches. `markers`: base offset of a control batch → the marker in it."""
        states = ProducerStates(0)
        for header in headers:
            if header.producer_id >= 0 and not header.is_control:
                states.apply_batch(header, header.base_offset)
            elif (marker := markers.get(header.base_offset)) is not None:
                identity = (header.producer_id, header.producer_epoch)
                at, timestamp = header.base_offset, header.max_timestamp
                states.apply_marker(*identity, marker.coordinator_epoch, at, timestamp, aborted=marker.aborted)
                states.complete(header.producer_id, at)
        rows, known_rows = states.snapshot(), log.producers.snapshot()
        self.with_producers += bool(rows)
        if rows != known_rows:
            text = "producer states are not those of the log"
            self._fail("T3", text, broker, partition, when, due=rows, known=known_rows)

    def _compare_index(
        self,
        broker: int,
        partition: Partition,
        index: tuple[str, bytearray],
        batches: dict[int, BatchHeader],
        when: str,
    ) -> None:
        """Compare an offset index with its segment. `index` is the segment's name and the bytes of the index."""
        base = int(index[0])
        for relative, position in INDEX_ENTRY.iter_unpack(index[1]):
            self.indexed += 1
            batch = batches.get(position)
            due = None if batch is None else batch.next_offset - 1
            if due != base + relative:
                text = "an index entry names no batch of the log"
                facts = {"segment": index[0], "position": position, "offset": base + relative, "due": due}
                self._fail("D13", text, broker, partition, when, **facts)

    def _fail(self, check: str, text: str, broker: int, partition: Partition, when: str, **facts: object) -> None:
        place = (partition.topic, partition.index)
        self._cluster.report.fail(check, text, partition=place, node=broker, when=when, **facts)


def _behind(begin: int, content: Content) -> Content:
    """Return the batches that end after this offset."""
    return tuple(batch for batch in content if batch[0] > begin)


def _folder(host: Host, path: str) -> Directory | None:
    """Return the folder of a log on its host."""
    directory: Directory | Inode | None = host.root
    for name in path.strip("/").split("/"):
        directory = directory.entries.get(name) if isinstance(directory, Directory) else None
    return directory if isinstance(directory, Directory) else None


def _files(folder: Directory | None, suffix: str) -> Iterator[tuple[str, Inode]]:
    """Yield the files with this suffix in order, by their names without it."""
    for name, inode in sorted(folder.entries.items() if folder is not None else ()):
        if name.endswith(suffix) and isinstance(inode, Inode):
            yield name.removesuffix(suffix), inode


def _epochs(headers: list[BatchHeader], log_start: int) -> list[tuple[int, int]]:
    """Return (epoch, first offset) of each epoch in these batches."""
    found: list[tuple[int, int]] = []
    for header in headers:
        if header.next_offset > log_start and (not found or header.partition_leader_epoch > found[-1][0]):
            found.append((header.partition_leader_epoch, max(log_start, header.base_offset)))
    return found
