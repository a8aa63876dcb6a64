"""The nodes of a simulated cluster without the checks, for users' tests.

Invariant: a node's host, with its disk, outlives the node's processes. The policy by which a node answers requests
wrongly ends with the process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import trio

from kraft.broker.node.serve import Node, serve
from kraft.image import MetadataImage, PartitionState
from kraft.seam import Seam
from kraft.sim.cluster.first_voters import format_controller
from kraft.sim.cluster.shape import CLUSTER_ID, ClusterShape, host_name
from kraft.sim.cluster.wholeness import partition_trouble
from kraft.sim.world.world import World
from kraft.wire.reply_policy import ReplyPolicy


@dataclass(frozen=True, slots=True)
class NodesState:
    """Combined state that the running nodes know. `controller` is the active one, None while there is none; its epoch
    is the newest that any node knows. `brokers` are the unfenced ones; `running` nodes are not frozen."""

    image: MetadataImage | None
    controller: int | None
    controller_epoch: int
    voters: tuple[int, ...]
    brokers: tuple[int, ...]
    running: tuple[int, ...]


OnFailure = Callable[[int, BaseException], None]


class SimulatedNodes:
    """The processes of a simulated cluster's nodes, by node id. `on_failure` is called for a node that ended by an
    error."""

    def __init__(self, world: World, shape: ClusterShape, on_failure: OnFailure) -> None:
        self.world = world
        self.shape = shape
        self.replies: dict[int, ReplyPolicy] = {}
        """Node → policy by which its process answers chosen requests wrongly."""
        self._nodes: dict[int, Node] = {}
        """Node → its last process that started far enough to be queried."""
        self._replaced: set[int] = set()
        """Nodes that got an empty disk. A controller among them is no longer one of the initial voters."""
        self._on_failure = on_failure

    def start(self, node_id: int) -> None:
        """Start a node, for the first time or again."""
        self._nodes.pop(node_id, None)
        self.replies[node_id] = ReplyPolicy()
        self.world.start(
            host_name(node_id),
            partial(self._live, node_id),
            on_failure=lambda name, error: self._on_failure(node_id, error),
        )

    def wipe(self, node_id: int) -> None:
        """Replace the disk of a node that is down by an empty one."""
        self.world.wipe(host_name(node_id))
        self._replaced.add(node_id)

    async def _live(self, node_id: int, seam: Seam) -> None:
        if self.shape.dynamic_voters and node_id in self.shape.controller_ids and node_id not in self._replaced:
            format_controller(self.shape, node_id, seam.disk, seam.clock.wall_ms())
        serving = partial(serve, self.shape.config(node_id), seam, cluster_id=CLUSTER_ID, replies=self.replies[node_id])
        async with trio.open_nursery() as nursery:
            self._nodes[node_id] = await nursery.start(serving)

    @property
    def up(self) -> dict[int, Node]:
        """Return the running nodes, except nodes that were started too recently to be queried."""
        return {node_id: node for node_id, node in self._nodes.items() if self.is_running(node_id)}

    def request_stop(self, node_id: int) -> None:
        """Ask a node to stop cleanly; one that is still starting is killed."""
        node = self._nodes.get(node_id)
        if node is None:
            self.world.kill(host_name(node_id))
        else:
            node.request_stop()

    def is_running(self, node_id: int) -> bool:
        return self.world.is_running(host_name(node_id))

    @property
    def image(self) -> MetadataImage | None:
        """Return the newest committed metadata that any running node has replayed."""
        images = [node.publisher.image for node in self.up.values()]
        return max(images, key=lambda image: image.offset, default=None)

    def find(self, topic: str, partition: int) -> PartitionState | None:
        """Return the committed state of a partition."""
        image = self.image
        found = None if image is None else image.topics.get(topic)
        return None if found is None else found.find(partition)

    def active_controller(self) -> int | None:
        """Return the leader of the quorum in the newest epoch."""
        leading = [
            (node.quorum.leader_and_epoch[1], node_id)
            for node_id, node in self.up.items()
            if node.quorum.is_leader and not self.world.is_paused(host_name(node_id))
        ]
        return max(leading)[1] if leading else None

    def uncommitted_controller(self) -> list[int]:
        """Return the active controller, if it has an uncommitted record."""
        active = self.active_controller()
        quorum = None if active is None else self._nodes[active].quorum
        is_behind = quorum is not None and quorum.log_end_offset > quorum.high_watermark
        return [active] if active is not None and is_behind else []

    def state(self) -> NodesState:
        """Return what the nodes know at this moment."""
        image, up = self.image, self.up
        newest = max(up.values(), key=lambda node: node.quorum.leader_and_epoch[1], default=None)
        voters = () if newest is None else newest.quorum.describe().endpoints
        alive = (broker for broker in self.shape.broker_ids if image is not None and image.is_alive(broker))
        running = (node for node in self.shape.node_ids if self.is_running(node))
        return NodesState(
            image=image,
            controller=self.active_controller(),
            controller_epoch=-1 if newest is None else newest.quorum.leader_and_epoch[1],
            voters=tuple(sorted(node for node, _, _ in voters)),
            brokers=tuple(alive),
            running=tuple(sorted(node for node in running if not self.world.is_paused(host_name(node)))),
        )

    def trouble(self) -> str:
        """Describe why the cluster is not healthy; "" if it is."""
        image, up = self.image, self.up
        down = [node_id for node_id in self.shape.node_ids if node_id not in up]
        if down or image is None:
            return f"nodes {down} are down"
        if self.active_controller() is None:
            return "no active controller"
        fenced = [broker for broker in self.shape.broker_ids if not self.serves(broker) or not image.is_alive(broker)]
        if fenced:
            return f"brokers {fenced} are fenced"
        return partition_trouble(image)

    def serves(self, node_id: int) -> bool:
        """Return whether a node runs and is ready. A broker is ready when it is unfenced, a node that is only a
        controller when it knows a leader."""
        node = self.up.get(node_id)
        if node is None:
            return False
        if node.broker is None:
            return node.publisher.leader_id is not None
        return node.broker.broker.lifecycle.unfenced.is_set()
