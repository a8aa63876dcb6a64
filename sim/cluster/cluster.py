"""A simulated cluster: nodes that run production code in a simulated world, how they are started and ended, and the
state of the cluster as a whole.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial

import trio

from kraft.broker.node.serve import serve
from kraft.broker.partition.partition import Partition
from kraft.image import MetadataImage
from kraft.seam import DiskError, Seam
from kraft.sim.check.observations import TopicPartition
from kraft.sim.cluster.findings import Report
from kraft.sim.cluster.first_voters import format_controller
from kraft.sim.cluster.shape import CLUSTER_ID, ClusterShape, host_name, node_of
from kraft.sim.cluster.watch import ClusterWatch
from kraft.sim.cluster.wholeness import partition_trouble
from kraft.sim.world.world import World
from kraft.wire.reply_policy import ReplyPolicy

LINK_LATENCY_MS = 5
"""Maximum travel time of a piece of data on a link that is not cut."""
POLL_MS = 20


class PlannedError(Exception):
    """Exception with which a fault ends a node's process."""


class SimCluster:
    """The nodes of a simulated cluster. All queries here are answered from committed metadata and from the simulated
    world."""

    def __init__(self, world: World, shape: ClusterShape, report: Report) -> None:
        self.world = world
        self.shape = shape
        self.report = report
        self.replies = {node_id: ReplyPolicy() for node_id in shape.node_ids}
        """Node → policy by which it answers chosen requests wrongly; the policy applies to all incarnations of the
        node."""
        self.watch = ClusterWatch(world, shape, link_latency_ms=LINK_LATENCY_MS)
        self.excused: set[int] = set()
        """Nodes whose disk fails because of a fault: they may stop because of it, and log errors."""
        self.missing_directory: set[int] = set()
        """Brokers without one of their log directories: they may log errors, and must keep running."""
        self.corrupt: set[int] = set()
        """Brokers with a log whose bytes were corrupted: they may log errors, and must keep running."""
        self._replaced: set[int] = set()
        """Controllers that restarted with an empty disk: they are no longer among the initial voters."""
        self._stopped_in_order: set[int] = set()
        """Nodes whose last incarnation ended cleanly, or was asked to stop cleanly."""
        self.refused: Counter[TopicPartition] = Counter()
        """Number of times that a reader got an error for a corrupt batch."""
        report.is_excused = lambda name: node_of(name) in self.failing_disks | self.corrupt

    # starts and ends of nodes

    def start_all(self) -> None:
        for node_id in self.shape.node_ids:
            self.start(node_id)

    def start(self, node_id: int, *, wiped: bool = False) -> None:
        """Start a node, for the first time or again; `wiped`: with an empty disk."""
        config, name = self.shape.config(node_id), host_name(node_id)

        async def live(seam: Seam) -> None:
            incarnation = self.world.host(name).lives
            if self.shape.dynamic_voters and node_id in self.shape.controller_ids and node_id not in self._replaced:
                format_controller(self.shape, node_id, seam.disk, seam.clock.wall_ms())
            async with trio.open_nursery() as nursery:
                node = await nursery.start(
                    partial(serve, config, seam, cluster_id=CLUSTER_ID, replies=self.replies[node_id])
                )
                self.watch.started(node_id, node, incarnation)

        life = self.world.start(name, live, on_failure=partial(self._failed, node_id))
        self.watch.chronicle.incarnation_started(node_id, life.number)
        if life.number > 1:
            self.watch.restarted(node_id, life.number, clean=node_id in self._stopped_in_order, wiped=wiped)
        self._stopped_in_order.discard(node_id)

    def crash(self, node_id: int, *, lose_power: bool, is_noticed: bool) -> None:
        """End a node by killing its process, or by cutting the power of its host. `is_noticed`: see
        ClusterWatch.died."""
        name = host_name(node_id)
        self._stopped_in_order.discard(node_id)
        if lose_power:
            self.world.power_off(name)
        else:
            self.world.kill(name)
        self.watch.died(node_id, lost_power=lose_power, is_noticed=is_noticed)

    async def end_by_error(self, node_id: int, takes_ms: int) -> None:
        """Let an exception end a node's process, which takes the given time. Its connections end first; a broker's
        listeners answer until its last task has ended. The caller must crash it afterwards."""
        observer = self.watch.nodes.get(node_id)
        if observer is None or not self.is_running(node_id):
            return
        if observer.node.broker is not None:
            observer.node.broker.broker.start_task(self._end_slowly, takes_ms)
            await self.world.sleep_ms(1)
        observer.node.fail(PlannedError())
        await self.wait_until(lambda: not self.is_running(node_id), 2 * takes_ms + POLL_MS, poll_ms=1)

    async def _end_slowly(self, takes_ms: int) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await self.world.sleep_ms(takes_ms)

    def wipe(self, node_id: int) -> None:
        """Replace the disk of a node that is down by an empty one."""
        self.world.wipe(host_name(node_id))
        self._replaced.add(node_id)
        self.watch.wiped(node_id)

    def delete_folder(self, node_id: int, log: TopicPartition) -> None:
        """Remove the folder of this log from the host of a broker that is down."""
        topic, index = log[0].partition("@")[0], log[1]
        for directory in self.shape.log_dirs_of(node_id):
            self.world.delete_folder(host_name(node_id), f"{directory}/{topic}-{index}")
        self.watch.wiped(node_id)

    async def stop(self, node_id: int, *, timeout_ms: int) -> bool:
        """Stop a node cleanly. Return False if it did not stop in time; then it is killed. A stop with a failed disk or
        a corrupt log is never clean: that directory gets no clean shutdown file."""
        name, observer = host_name(node_id), self.watch.nodes.get(node_id)
        was_well = node_id not in self.failing_disks | self.corrupt
        self._stopped_in_order.add(node_id)
        if observer is not None:
            observer.node.request_stop()
        in_time = await self.wait_until(lambda: not self.world.is_running(name), timeout_ms)
        if not (in_time and was_well) or node_id in self.failing_disks | self.corrupt:
            self._stopped_in_order.discard(node_id)
        self.world.kill(name)
        self.watch.stopped(node_id)
        return in_time

    def _failed(self, node_id: int, name: str, error: BaseException) -> None:
        """Record that a node stopped although no test or fault asked it to."""
        self._stopped_in_order.discard(node_id)
        if isinstance(error, PlannedError):
            return
        where = "".join(traceback.format_exception(error)[-6:])
        if node_id not in self.excused or not isinstance(error, DiskError):
            self.report.fail("N1", f"{name} stopped: {error!r}", where=where)
        else:
            self.report.excused[name] += 1
        self.watch.died(node_id, lost_power=True, is_noticed=False)

    def is_running(self, node_id: int) -> bool:
        return self.world.is_running(host_name(node_id))

    @property
    def failing_disks(self) -> set[int]:
        """Return the nodes whose disk fails because of a fault, all of it or in part."""
        return self.excused | self.missing_directory

    @property
    def down(self) -> list[int]:
        return [node_id for node_id in self.shape.node_ids if not self.is_running(node_id)]

    # state

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self.watch.fold.image

    @property
    def is_led(self) -> bool:
        """Return whether there is an active controller, and its node runs."""
        return self.watch.active_controller is not None

    def trouble(self) -> str:
        """Describe why the cluster is not yet healthy and at rest; "" if it is."""
        return self.loss() or self._lagging()

    def loss(self) -> str:
        """Describe what is wrong with the cluster, also while clients write; "" if the cluster is healthy."""
        image = self.image
        if self.down:
            return f"nodes {self.down} are down"
        if not self.is_led:
            return "no active controller"
        fenced = [broker for broker in self.shape.broker_ids if not image.is_alive(broker)]
        if fenced:
            return f"brokers {fenced} are fenced"
        if self.shape.joins_by_itself and (absent := self.absent_voters()):
            return f"controllers {absent} are no voters"
        return partition_trouble(image)

    def absent_voters(self) -> list[int]:
        """Return the controllers that are not voters under their present directory ids, as committed by the active
        controller. All of them count as absent while there is no active controller or a change is not committed."""
        observer = self.watch.nodes.get(self.watch.active_controller or 0)
        raft = None if observer is None else observer.node.quorum.replica
        if raft is None or raft.log.voters.latest_offset >= (raft.high_watermark or 0):
            return list(self.shape.controller_ids)
        known = {voter.key.node_id: str(voter.key.directory_id) for voter in raft.voters.voters}
        return [node for node in self.shape.controller_ids if known.get(node) != self.watch.directory_of(node)]

    def _lagging(self) -> str:
        """Return the replicas whose log end or high watermark differs from the leader's."""
        for topic in self.image.topics:
            for index, state in topic.partitions():
                ends = {broker: self.marks(broker, topic.name, index) for broker in state.replicas}
                if len({*ends.values()}) != 1 or None in ends.values():
                    return f"{topic.name}-{index} has marks {ends}"
        return ""

    def marks(self, broker: int, topic: str, index: int) -> tuple[int, int] | None:
        """Return (high watermark, log end) of a replica; None if its log cannot be read yet."""
        replica = self._replica(broker, topic, index)
        log = None if replica is None else replica.readable
        if replica is None or log is None:
            return None
        return replica.high_watermark, log.log_end_offset

    def begin_of(self, broker: int, topic: str, index: int) -> int:
        """Return the first offset that a replica can serve; 0 if its log cannot be read yet."""
        replica = self._replica(broker, topic, index)
        log = None if replica is None else replica.readable
        return 0 if log is None else log.log_start_offset

    def segment_sizes(self, broker: int, topic: str, index: int) -> list[int]:
        """Return the bytes of each segment of a replica, oldest first; empty if its log is not open."""
        replica = self._replica(broker, topic, index)
        log = None if replica is None else replica.log
        return [] if log is None else [segment.size for segment in log.segments]

    def _replica(self, broker: int, topic: str, index: int) -> Partition | None:
        observer = self.watch.nodes.get(broker)
        node = None if observer is None else observer.node.broker
        return None if node is None else node.broker.replicas.find(topic, index)

    def is_in_sync(self, node_id: int) -> bool:
        """Return whether a node has fully recovered: it runs, and a broker is also unfenced and in the ISR of each of
        its partitions."""
        if not self.is_running(node_id) or node_id not in self.watch.nodes:
            return False
        if node_id in self.shape.controller_ids:
            return self.is_led
        return self.image.is_alive(node_id) and not any(
            node_id in state.replicas and node_id not in state.isr
            for topic in self.image.topics
            for _, state in topic.partitions()
        )

    def can_lose(self, broker: int, *, with_logs: bool = False) -> bool:
        """Return whether the fault budget allows this broker to fail: each of its partitions keeps an in-sync replica
        that runs and has lost nothing. With `with_logs` the log of the broker is lost too. Then each partition keeps a
        replica that is complete by the controller's knowledge, because the controller does not wait for a broker with a
        lost log."""
        damage, labels = self.watch.suite.damage, self.watch.labels
        return all(
            any(
                member != broker
                and self.is_running(member)
                and member not in self.failing_disks
                and (not with_logs or self.is_registered(member))
                and not damage.holds(member, (labels.of(topic.topic_id, topic.name), index))
                for member in state.isr
            )
            for topic in self.image.topics
            for index, state in topic.partitions()
            if broker in state.replicas
        )

    def is_registered(self, broker: int) -> bool:
        """Return whether a running broker has been registered and unfenced at least once since its start, even if it is
        fenced now.

        Before that, the committed ISR may name the broker although the broker lost records with its power. Its
        registration removes it from the ISR."""
        observer = self.watch.nodes.get(broker)
        node = None if observer is None else observer.node.broker
        return self.is_running(broker) and node is not None and node.broker.lifecycle.unfenced.is_set()

    async def wait_until(self, condition: Callable[[], bool], timeout_ms: int, poll_ms: int = POLL_MS) -> bool:
        """Let virtual time pass until the condition holds. Return False if it did not in time."""
        return await self.world.wait_until(condition, timeout_ms, poll_ms)
