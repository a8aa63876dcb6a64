"""The kinds of clusters that a campaign can run on, as its command chooses them."""

from __future__ import annotations

from pathlib import Path

from kraft.sim.chaos.run.campaign import ClusterChoice


def own_choice(*, namespaces: bool = False) -> ClusterChoice:
    """Nodes of pykraft; links by toxiproxy, or by network namespaces."""
    from kraft.sim.chaos.targets.own_target import OwnTarget

    return ClusterChoice(
        name="pykraft",
        make=lambda scenario, files, warden: OwnTarget(scenario, files, warden, uses_namespaces=namespaces),
    )


def kafka_choice(folder: Path) -> ClusterChoice:
    """Apache Kafka from the files in this folder. ClusterError if there are none."""
    from kraft.sim.chaos.apache.kafka_files import find_libraries
    from kraft.sim.chaos.targets.kafka_target import KafkaTarget

    libraries = find_libraries(folder)
    return ClusterChoice(
        name="kafka", make=lambda scenario, files, warden: KafkaTarget(scenario, files, warden, libraries)
    )


def brought_choice(bootstrap: str, control: Path | None) -> ClusterChoice:
    """A cluster that runs already; `control` is a file with the commands that break its nodes. ClusterError."""
    from kraft.sim.chaos.clusters.node_commands import NodeCommands
    from kraft.sim.chaos.targets.brought_target import BroughtTarget

    commands = None if control is None else NodeCommands.read(control)
    return ClusterChoice(
        name="brought", make=lambda scenario, files, warden: BroughtTarget(scenario, files, warden, bootstrap, commands)
    )
