"""The initial voters of a cluster of processes without configured voters: all controllers (KIP-853)."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import HOST
from kraft.deploy.launch.node_process import read_config
from kraft.quorum.bootstrap_voters import write_bootstrap_checkpoint
from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.runtime import open_seam
from kraft.seam import Address
from kraft.storage.meta_properties import MetaProperties, write_meta_properties


def format_first_voters(folder: ClusterFolder, cluster_id: str, controllers: Mapping[int, int]) -> None:
    """Format the controllers' directories, each with a checkpoint that names all controllers as voters. `controllers`:
    node → port of its controller listener. *Blocking.* Must not be called from within trio."""
    trio.run(_format, folder, cluster_id, controllers)


async def _format(folder: ClusterFolder, cluster_id: str, controllers: Mapping[int, int]) -> None:
    async with open_seam(node_name="kraft chaos") as seam:
        ids = {node: seam.random.uuid() for node in controllers}
        voters = [Voter(ReplicaKey(node, ids[node]), Address(HOST, port)) for node, port in controllers.items()]
        for node in controllers:
            config = read_config(folder.node(node) / "server.properties")
            seam.disk.make_directory(config.metadata_log_dir)
            write_bootstrap_checkpoint(seam.disk, config, VoterSet(tuple(voters)), seam.clock.wall_ms())
            properties = MetaProperties(cluster_id, node, ids[node])
            write_meta_properties(seam.disk, config.metadata_log_dir, properties)
