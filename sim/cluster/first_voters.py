"""Initial voters of a simulated cluster whose voters are not configured: all controllers, named in the checkpoint of
each controller (KIP-853).
"""

from __future__ import annotations

from uuid import UUID

from kraft.quorum.bootstrap_voters import write_bootstrap_checkpoint
from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.seam import Address, Disk
from kraft.sim.cluster.shape import CLUSTER_ID, CONTROLLER_PORT, ClusterShape, host_name
from kraft.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties

DIRECTORY_IDS = 0x6B72616674000000
"""Upper half of the directory ids that the controllers get."""


def directory_id_of(controller: int) -> UUID:
    return UUID(int=(DIRECTORY_IDS << 64) + controller)


def address_of(controller: int) -> Address:
    return Address(host_name(controller), CONTROLLER_PORT)


def format_controller(shape: ClusterShape, controller: int, disk: Disk, now_ms: int) -> None:
    """Format the directory of a controller that is an initial voter, unless it is formatted already. *Blocking.*"""
    config = shape.config(controller)
    directory = config.metadata_log_dir
    if read_meta_properties(disk, directory) is None:
        disk.make_directory(directory)
        first = (Voter(ReplicaKey(one, directory_id_of(one)), address_of(one)) for one in shape.controller_ids)
        write_bootstrap_checkpoint(disk, config, VoterSet(tuple(first)), now_ms)
        write_meta_properties(disk, directory, MetaProperties(CLUSTER_ID, controller, directory_id_of(controller)))
