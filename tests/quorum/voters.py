"""A simulated cluster without configured voters: a checkpoint names the first voters, and the voters may change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

from kraft.client.admin import Admin
from kraft.quorum.bootstrap_voters import write_bootstrap_checkpoint
from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.seam import Address
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.findings import Report
from kraft.sim.cluster.shape import CLUSTER_ID, CONTROLLER_PORT, ClusterShape, host_name
from kraft.sim.world import World
from kraft.storage.meta_properties import MetaProperties, write_meta_properties
from tests.stages.admin_client import Stage

UP_MS_MAX = 10_000


def directory(node_id: int, life: int = 1) -> UUID:
    """Return the directory id that a controller is formatted with."""
    return UUID(int=(7 << 120) + node_id * 100 + life)


def address(node_id: int) -> Address:
    return Address(host_name(node_id), CONTROLLER_PORT)


def voter(node_id: int, life: int = 1) -> Voter:
    return Voter(ReplicaKey(node_id, directory(node_id, life)), address(node_id))


class Voters:
    """The cluster, its admin client, and actions on its controllers."""

    def __init__(self, stage: Stage, first: tuple[int, ...]) -> None:
        self.cluster = stage.cluster
        self.admin = stage.admin
        self.stage = stage
        self.first = first

    def format(self, node_id: int, life: int = 1) -> None:
        """Format a controller's directory; a first voter, when formatted for the first time, also gets the
        checkpoint."""
        config = self.cluster.shape.config(node_id)
        seam = self.cluster.world.node(host_name(node_id))
        seam.disk.make_directory(config.metadata_log_dir)
        meta = MetaProperties(CLUSTER_ID, node_id, directory(node_id, life))
        write_meta_properties(seam.disk, config.metadata_log_dir, meta)
        if node_id in self.first and life == 1:
            voters = VoterSet(tuple(voter(one) for one in self.first))
            write_bootstrap_checkpoint(seam.disk, config, voters, seam.clock.wall_ms())

    async def ids(self) -> tuple[int, ...]:
        """Return the voters that the leader reports."""
        return tuple(one.node_id for one in (await self.admin.nodes.quorum()).voters)

    async def wait(self, condition: Callable[[], bool], limit_ms: int = 20_000) -> None:
        assert await self.cluster.wait_until(condition, limit_ms), self.cluster.trouble()

    @property
    def leader(self) -> int:
        """The id of the active controller."""
        found = self.cluster.watch.active_controller
        assert found is not None
        return found

    async def wait_reported(self, *voters: int) -> None:
        """Wait until the leader reports these voters."""
        for _ in range(200):
            if await self.ids() == voters:
                return
            await self.cluster.world.sleep_ms(50)
        raise AssertionError(f"voters are {await self.ids()}, not {voters}")


def play(
    work: Callable[[Voters], Awaitable[None]],
    *,
    controllers: int = 3,
    first: tuple[int, ...] = (101, 102, 103),
    seed: int = 5,
    timeout_ms: float = 30_000,
    **overrides: str,
) -> None:
    """Run `work` on a cluster of one broker in which `first` of the controllers are voters at first."""
    servers = ",".join(f"{host_name(node)}:{CONTROLLER_PORT}" for node in range(101, 101 + controllers))
    settings = {
        "controller.quorum.voters": "",
        "controller.quorum.bootstrap.servers": servers,
        "default.replication.factor": "1",
        **{key.replace("_", "."): value for key, value in overrides.items()},
    }
    world = World(seed)
    report = Report(lambda: world.now_ns // 1_000_000)
    cluster = SimCluster(world, ClusterShape(controllers, 1, settings), report)

    async def main(world: World) -> None:
        servers = cluster.shape.bootstrap_servers
        async with Admin(bootstrap_servers=servers, timeout_ms=timeout_ms, seam=world.node("admin")) as admin:
            voters = Voters(Stage(cluster, admin), first)
            for node_id in cluster.shape.controller_ids:
                voters.format(node_id)
            cluster.start_all()
            await voters.wait(lambda: not cluster.trouble())
            await work(voters)

    with report.listening():
        world.run(main)
    findings = [*(one for one in report.findings if one.check == "N1"), *cluster.watch.suite.findings]
    assert not findings, findings[0]
