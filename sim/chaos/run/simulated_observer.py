"""The observer of a simulated cluster. It reads the nodes' state directly, so its samples are never late and no query
is rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

from kraft.sim.chaos.run.observer import SAMPLE_MS
from kraft.sim.chaos.run.run_folder import ClusterSample, PartitionSample
from kraft.sim.chaos.scenarios.scenario import TOPIC
from kraft.sim.simulated_cluster import SimulatedCluster


@dataclass(frozen=True, slots=True)
class SimulatedObserver:
    """Adds a sample to `samples` every SAMPLE_MS of virtual time. Partitions come from the newest committed metadata of
    any running node."""

    cluster: SimulatedCluster
    now_ms: Callable[[], float]
    samples: list[ClusterSample]

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self.samples.append(self.take())
            await trio.sleep(SAMPLE_MS / 1000)

    def take(self) -> ClusterSample:
        """Take a sample now."""
        state = self.cluster.state()
        topic = None if state.image is None else state.image.topics.get(TOPIC)
        return ClusterSample(
            time_ms=self.now_ms(),
            partitions=tuple(
                PartitionSample(
                    topic=TOPIC,
                    partition=number,
                    leader=one.leader,
                    leader_epoch=one.leader_epoch,
                    isr=tuple(sorted(one.isr)),
                    replicas=one.replicas,
                )
                for number, one in (() if topic is None else topic.partitions())
            ),
            controller=-1 if state.controller is None else state.controller,
            controller_epoch=state.controller_epoch,
            voters=state.voters,
            brokers=state.brokers,
            running=state.running,
            facts=self.cluster.facts(),
        )
