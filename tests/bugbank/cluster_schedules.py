"""Schedules for whole simulated clusters, with all checks of the simulator. Its random runs are the swarm."""

from __future__ import annotations

from kraft.client.admin import Admin, NewTopic
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import TOPIC
from kraft.sim.run.run import RunSettings, run_seed
from tests.bugbank.campaign import slow
from tests.bugbank.mutation import Schedule
from tests.stages.checked_cluster import Story, kill_and_settle, play, produce, state_of, wait_whole

SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1000"}
SHORT = FaultSettings(duration_ms=10_000)


@slow
def clusters(seed: int) -> list[str]:
    """Run one seed of the simulator, with faults for ten seconds."""
    findings = run_seed(seed, RunSettings(faults=SHORT)).findings
    return [finding.check for finding in sorted(findings, key=lambda finding: finding.at_ms)]


def _directed(name: str, story: Story, **stage: object) -> Schedule:
    def schedule(seed: int) -> list[str]:
        findings = play(story, seed=seed, **stage)  # type: ignore[arg-type]
        return [finding.check for finding in sorted(findings, key=lambda finding: finding.at_ms)]

    schedule.__name__ = name
    return schedule


async def _kill_the_controller(cluster: SimCluster) -> None:
    await kill_and_settle(cluster, cluster.watch.active_controller or 0)


async def _change_metadata(cluster: SimCluster) -> None:
    async with _admin(cluster) as admin:
        for number in range(12):
            await admin.topics.create(NewTopic(f"topic-{number}", 1, 3))
    await cluster.world.sleep_ms(1_000)


async def _restart_a_follower(cluster: SimCluster) -> None:
    """Restart a follower that has committed records above its checkpointed high watermark."""
    follower = next(one for one in state_of(cluster).isr if one != state_of(cluster).leader)
    await produce(cluster, 20)
    await kill_and_settle(cluster, follower)
    cluster.start(follower)
    await wait_whole(cluster)


async def _delete_records_beyond_a_follower(cluster: SimCluster) -> None:
    """Delete a prefix of the log while a follower is down, up to an offset beyond the follower's log end."""
    follower = next(one for one in state_of(cluster).isr if one != state_of(cluster).leader)
    await produce(cluster, 5)
    await kill_and_settle(cluster, follower)
    await produce(cluster, 20)
    async with _admin(cluster) as admin:
        await admin.partitions.delete_records({(TOPIC, 0): 15})
    cluster.start(follower)
    await wait_whole(cluster)


async def _create_a_topic_again(cluster: SimCluster) -> None:
    """Delete a topic and create one with the same name, while a broker is down."""
    down = state_of(cluster).isr[-1]
    await produce(cluster, 5)
    await kill_and_settle(cluster, down)
    async with _admin(cluster) as admin:
        await admin.topics.delete(TOPIC)
        await cluster.wait_until(lambda: TOPIC not in cluster.image.topics.names, 10_000)
        await admin.topics.create(NewTopic(TOPIC, 1, 3))
    cluster.start(down)
    await wait_whole(cluster)
    await produce(cluster, 8)
    await cluster.world.sleep_ms(500)


def _admin(cluster: SimCluster) -> Admin:
    return Admin(bootstrap_servers=cluster.shape.bootstrap_servers, seam=cluster.world.node("admin"))


the_active_controller_dies = _directed("the_active_controller_dies", _kill_the_controller, brokers=0)
snapshots_all_the_time = _directed("snapshots_all_the_time", _change_metadata, overrides=SNAPSHOTS)
a_follower_restarts = _directed("a_follower_restarts", _restart_a_follower)
a_follower_below_the_log_start = _directed("a_follower_below_the_log_start", _delete_records_beyond_a_follower)
a_topic_under_an_old_name = _directed("a_topic_under_an_old_name", _create_a_topic_again)
