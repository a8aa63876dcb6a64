"""`meta.properties`: the cluster and node that a data directory belongs to, and the directory's id.

A node refuses a directory of another cluster, another node, or another data format.
Source: KIP-858 (directory id), Kafka's MetaProperties.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kraft.seam import Disk
from kraft.storage.partition_metadata import decode_uuid, encode_uuid

META_PROPERTIES = "meta.properties"
FORMAT_VERSION = 1
RESERVED_IDS_MAX = 100
"""Limit of reserved directory ids: smaller ones have special meanings (0 migrating, 1 unassigned, 2 lost)."""


class ForeignDirectory(Exception):
    """The directory does not belong to this node, or has a format that this release does not read. The text suggests
    what to do."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    cluster_id: str
    node_id: int
    directory_id: UUID

    def encode(self) -> bytes:
        return (
            f"version={FORMAT_VERSION}\ncluster.id={self.cluster_id}\nnode.id={self.node_id}\n"
            f"directory.id={encode_uuid(self.directory_id)}\n"
        ).encode()

    @staticmethod
    def decode(data: bytes, path: str) -> MetaProperties:
        """Parse the file. Raises ForeignDirectory if it has another format version or lacks a key."""
        fields = _properties(data)
        version = fields.get("version", "")
        if version != str(FORMAT_VERSION):
            raise ForeignDirectory(_wrong_version(path, version))
        directory_id = decode_uuid(fields.get("directory.id", ""))
        node_id = fields.get("node.id", "")
        if not fields.get("cluster.id") or not node_id.isdigit() or directory_id is None:
            raise ForeignDirectory(
                f"{path}: needs cluster.id, node.id (a number) and directory.id (22 characters of base64), "
                f"has {fields}; format the directory again with `kraft storage format`"
            )
        if directory_id.int < RESERVED_IDS_MAX:
            raise ForeignDirectory(f"{path}: directory.id {directory_id} is reserved; format the directory again")
        return MetaProperties(fields["cluster.id"], int(node_id), directory_id)

    def require_owner(self, path: str, *, cluster_id: str | None, node_id: int) -> None:
        """Raise ForeignDirectory unless the directory belongs to this node in this cluster (None: any cluster)."""
        if cluster_id is not None and self.cluster_id != cluster_id:
            raise ForeignDirectory(
                f"{path}: belongs to cluster {self.cluster_id}, this node to cluster {cluster_id}; "
                "give the node its own folder, or correct its cluster id"
            )
        if self.node_id != node_id:
            raise ForeignDirectory(
                f"{path}: belongs to node {self.node_id}, this is node {node_id}; "
                "give the node its own folder, or correct node.id"
            )


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Return the directory's identity, or None if it is not formatted. Raises ForeignDirectory. *Blocking.*"""
    path = f"{directory}/{META_PROPERTIES}"
    return MetaProperties.decode(disk.read_file(path), path) if disk.exists(path) else None


def write_meta_properties(disk: Disk, directory: str, properties: MetaProperties) -> None:
    """Write the identity; durable on return. *Blocking.*"""
    disk.write_file_atomic(f"{directory}/{META_PROPERTIES}", properties.encode())


def _properties(data: bytes) -> dict[str, str]:
    """Parse the lines of a Java properties file, as far as this file uses the format."""
    lines = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith(("#", "!")))
    return {key.strip(): value.strip() for key, value in pairs}


def _wrong_version(path: str, version: str) -> str:
    if version.isdigit() and int(version) > FORMAT_VERSION:
        return (
            f"{path}: the data format is version {version}, newer than version {FORMAT_VERSION} of this release; "
            "install the release that wrote it, or a later one"
        )
    if version.isdigit():
        return (
            f"{path}: the data format is version {version}, older than version {FORMAT_VERSION} of this release, "
            "which cannot convert it; copy the topics through a client into a new cluster"
        )
    return f"{path}: has no version, expected version={FORMAT_VERSION}; no node has formatted this data folder"
