"""Read from the data directories to which cluster and node this process belongs, and lock the metadata directory.

All directories must be of one cluster and of this node. A broker's replica manager locks its log directories; a
separate metadata directory is locked here. *Blocking*: called before the node serves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from kraft.config import NodeConfig
from kraft.seam import Disk, DiskError, HandleRevoked, Random, Seam
from kraft.storage.log_dir import LogDirectory, format_directory
from kraft.storage.meta_properties import ForeignDirectory, MetaProperties, read_meta_properties


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The identity of a node. `metadata` is the content of the metadata directory's meta.properties; `locked` is that
    directory, if it is locked here."""

    metadata: MetaProperties
    locked: LogDirectory | None

    @property
    def cluster_id(self) -> str:
        return self.metadata.cluster_id

    def release(self) -> None:
        """Release the lock. No effect if this incarnation of the node has already ended."""
        if self.locked is not None:
            try:
                self.locked.close()
            except HandleRevoked:
                return


def open_identity(config: NodeConfig, seam: Seam, cluster_id: str | None) -> NodeIdentity:
    """Read and check the node's directories. With a `cluster_id`, format unformatted directories for that cluster.
    Raises ForeignDirectory, DirectoryInUse, and DiskError only for the metadata directory."""
    disk = seam.disk
    if cluster_id is not None:
        format_directories(config, disk, seam.random, cluster_id, skip_failing=True)
    metadata = read_meta_properties(disk, config.metadata_log_dir)
    if metadata is None:
        raise ForeignDirectory(
            f"{config.metadata_log_dir}: is not formatted; run `kraft storage format` with this node's properties first"
        )
    wanted = metadata.cluster_id if cluster_id is None else cluster_id
    metadata.require_owner(config.metadata_log_dir, cluster_id=wanted, node_id=config.node_id)
    for directory in config.log_dirs:
        _require_ours(disk, directory, wanted, config.node_id)
    if config.is_broker and config.metadata_log_dir in config.log_dirs:
        return NodeIdentity(metadata, None)
    locked = LogDirectory.open_directory(disk, config.metadata_log_dir, node_id=config.node_id, cluster_id=wanted)
    return NodeIdentity(metadata, locked)


def format_directories(
    config: NodeConfig,
    disk: Disk,
    random: Random,
    cluster_id: str,
    *,
    metadata_directory_id: UUID | None = None,
    before_metadata: Callable[[], None] | None = None,
    skip_failing: bool = False,
) -> list[str]:
    """Format the node's unformatted directories, and return their paths. Raises ForeignDirectory if a formatted
    directory belongs to another cluster or node.

    The metadata directory gets `metadata_directory_id`, if given, after `before_metadata` has written the files into it
    that must exist at the first start. With `skip_failing`, a directory with a failing device is left to the replica
    manager, which takes it offline. This never applies to the metadata directory."""
    formatted: list[str] = []
    for directory in dict.fromkeys((config.metadata_log_dir, *config.log_dirs)):
        try:
            found = read_meta_properties(disk, directory)
        except DiskError:
            if not skip_failing or directory == config.metadata_log_dir:
                raise
            continue
        if found is not None:
            found.require_owner(directory, cluster_id=cluster_id, node_id=config.node_id)
            continue
        directory_id = random.uuid()
        if directory == config.metadata_log_dir:
            directory_id = metadata_directory_id or directory_id
            if before_metadata is not None:
                before_metadata()
        format_directory(disk, directory, MetaProperties(cluster_id, config.node_id, directory_id))
        formatted.append(directory)
    return formatted


def _require_ours(disk: Disk, directory: str, cluster_id: str, node_id: int) -> None:
    """Raise ForeignDirectory if the directory does not belong to this cluster and node. A directory that cannot be read
    is left to the replica manager, which takes it offline."""
    try:
        found = read_meta_properties(disk, directory)
    except DiskError:
        return
    if found is not None:
        found.require_owner(directory, cluster_id=cluster_id, node_id=node_id)
