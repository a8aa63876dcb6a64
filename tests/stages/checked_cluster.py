"""A simulated cluster with all checks, in which a schedule of the test takes the place of the faults of a seed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from kraft.client import Producer
from kraft.image import PartitionState
from kraft.image.partitions import NO_LEADER
from kraft.sim.check.base import Finding
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.findings import Report
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis.swarm import OVERRIDES
from kraft.sim.workload.admin_work import AdminWorker
from kraft.sim.workload.workload import TOPIC
from kraft.sim.world import World, WorldOptions

Story = Callable[[SimCluster], Awaitable[None]]
UP_MS_MAX = 10_000


def play(
    story: Story,
    *,
    bug: Callable[[], None] = lambda: None,
    seed: int = 1,
    controllers: int = 3,
    brokers: int = 3,
    log_dirs: int = 1,
    overrides: Mapping[str, str] | None = None,
    options: WorldOptions | None = None,
    log_lines: list[str] | None = None,
) -> list[Finding]:
    """Run the schedule `story` on a cluster that has a topic with one partition, and return the findings of all checks.
    `bug` is called when the schedule begins. `log_lines` gets the last lines that nodes logged."""
    world = World(seed, options)
    report = Report(lambda: world.now_ns // 1_000_000)
    shape = ClusterShape(controllers, brokers, {**OVERRIDES, **(overrides or {})}, log_dirs)
    cluster = SimCluster(world, shape, report)

    async def main(world: World) -> None:
        cluster.start_all()
        assert await cluster.wait_until(lambda: not cluster.trouble(), UP_MS_MAX), cluster.trouble()
        if brokers:
            await AdminWorker(cluster).create(TOPIC, 1)
            assert await cluster.wait_until(lambda: TOPIC in cluster.image.topics.names, UP_MS_MAX)
        bug()
        await story(cluster)

    with report.listening():
        world.run(main)
    cluster.watch.suite.finish(cluster.watch.now_ms)
    if log_lines is not None:
        log_lines += report.log_lines
    return [*cluster.watch.suite.findings, *report.findings]


def checks_of(findings: list[Finding]) -> set[str]:
    return {finding.check for finding in findings}


# parts of schedules


def state_of(cluster: SimCluster) -> PartitionState:
    """Return the committed state of the topic's only partition."""
    topic = cluster.image.topics.get(TOPIC)
    assert topic is not None
    return topic.partition(0)


async def produce(cluster: SimCluster, count: int, *, acks: str = "all", timeout_ms: int = 5_000) -> int:
    """Send this many records one after the other, each in its own batch. Return how many were acknowledged."""
    done = 0
    seam = cluster.world.node("producer")
    async with Producer(
        bootstrap_servers=cluster.shape.bootstrap_servers,
        acks=acks,
        enable_idempotence=False,
        delivery_timeout_ms=timeout_ms,
        seam=seam,
    ) as producer:
        for number in range(count):
            await producer.send(TOPIC, b"%d" % number, partition=0)
            done += 1
    return done


async def kill_and_settle(cluster: SimCluster, node: int, *, lose_power: bool = False) -> None:
    """Crash a node, and wait until the controllers have fenced it, or have elected another leader."""
    cluster.crash(node, lose_power=lose_power, is_noticed=False)
    await cluster.world.sleep_ms(500)


async def wait_whole(cluster: SimCluster) -> None:
    assert await cluster.wait_until(lambda: not cluster.trouble(), 20_000), cluster.trouble()


async def die_together(cluster: SimCluster, *, lose_power: bool) -> int:
    """Let all brokers die at the same moment; the leader dies by a power loss if requested, and restarts after the
    other brokers. Wait for a leader, and return the earlier leader."""
    leader = state_of(cluster).leader
    for node in cluster.shape.node_ids:
        cluster.crash(node, lose_power=lose_power and node == leader, is_noticed=False)
    for node in cluster.shape.node_ids:
        if node != leader:
            cluster.start(node)
    assert await cluster.wait_until(lambda: state_of(cluster).isr == (leader,), 10_000)
    cluster.start(leader)
    assert await cluster.wait_until(lambda: state_of(cluster).isr != (leader,), 10_000)
    assert await cluster.wait_until(lambda: state_of(cluster).leader != NO_LEADER, 10_000)
    return leader
