"""The kinds of clusters that a campaign can run on, as selected on the command line."""

from __future__ import annotations

from pathlib import Path

from kraft.sim.chaos.run.campaign import ClusterChoice


def own_choice(*, namespaces: bool = False) -> ClusterChoice:
    """Return the kind of cluster that consists of pykraft nodes. Faults of links are carried out by toxiproxy or by
    network namespaces."""
    from kraft.sim.chaos.targets.own_target import OwnTarget

    return ClusterChoice(
        name="pykraft",
        make=lambda scenario, files, warden: OwnTarget(scenario, files, warden, uses_namespaces=namespaces),
    )


def kafka_choice(folder: Path) -> ClusterChoice:
    """Return the kind of cluster that runs Apache Kafka from the files in this folder. Raises ClusterError if there are
    none."""
    from kraft.sim.chaos.apache.kafka_files import find_libraries
    from kraft.sim.chaos.targets.kafka_target import KafkaTarget

    libraries = find_libraries(folder)
    return ClusterChoice(
        name="kafka", make=lambda scenario, files, warden: KafkaTarget(scenario, files, warden, libraries)
    )


def user_choice(bootstrap: str, control: Path | None) -> ClusterChoice:
    """Return the kind of cluster that already runs and belongs to the user. `control` is a file with the commands for
    faults of its nodes. Raises ClusterError."""
    from kraft.sim.chaos.clusters.node_commands import NodeCommands
    from kraft.sim.chaos.targets.user_target import UserTarget

    commands = None if control is None else NodeCommands.read(control)
    return ClusterChoice(
        name="brought", make=lambda scenario, files, warden: UserTarget(scenario, files, warden, bootstrap, commands)
    )
