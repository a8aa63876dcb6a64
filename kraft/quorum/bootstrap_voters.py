"""The first voters of a quorum whose configuration does not name them (KIP-853).

`kraft storage format` writes them as the checkpoint `0-0` of the metadata log: control records and no event. It is the
base of the voter history until the first leader has copied it into the log. It is never served to another node. All
functions that touch the disk are *blocking*.
Source: KIP-853.
"""

from __future__ import annotations

from uuid import UUID

from kraft.config import ConfigError, NodeConfig
from kraft.quorum.metadata_batches import voters_record
from kraft.quorum.metadata_log import KRAFT_VERSION_WITH_VOTERS, MetadataLog
from kraft.quorum.node_settings import controller_listener
from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.seam import Address, Disk
from kraft.storage.partition_metadata import decode_uuid, encode_uuid
from kraft.storage.snapshots import SnapshotId, SnapshotStore
from kraft.wire.records.control_records import ControlRecord, ControlRecordType

BOOTSTRAP = SnapshotId(0, 0)


class BadVoters(Exception):
    """Error: the first voters that the configuration or the command line names are not valid; the text says what was
    expected."""


def parse_initial_controllers(text: str) -> VoterSet:
    """Parse `id@host:port:directory-id,…`, the format of Kafka's --initial-controllers. Raises BadVoters."""
    try:
        return VoterSet(tuple(_parse_one(entry.strip()) for entry in text.split(",") if entry.strip()))
    except ValueError as problem:
        raise BadVoters(str(problem)) from None


def _parse_one(entry: str) -> Voter:
    node_id, at, rest = entry.partition("@")
    address, colon, directory = rest.rpartition(":")
    host, _, port = address.rpartition(":")
    directory_id = decode_uuid(directory)
    is_whole = bool(at and colon and host and node_id.isdigit() and port.isdigit()) and directory_id is not None
    if not is_whole or not 0 < int(port) < 1 << 16:
        example = encode_uuid(UUID(int=0x3A1F5C7E9B2D4F608A1C3E5D7F90B2D4))
        raise BadVoters(f"{entry!r}: expected ID@HOST:PORT:DIRECTORY-ID, for example 101@localhost:9192:{example}")
    return Voter(ReplicaKey(int(node_id), directory_id), Address(host.strip("[]"), int(port)))


def standalone_voters(config: NodeConfig, directory_id: UUID) -> VoterSet:
    """Return a voter set of this controller alone, at its advertised address. Raises BadVoters if that address has no
    port."""
    listener = controller_listener(config)
    for endpoint in config.advertised_listeners:
        if endpoint.name == listener and endpoint.port > 0:
            address = Address(endpoint.host or "localhost", endpoint.port)
            return VoterSet((Voter(ReplicaKey(config.node_id, directory_id), address),))
    raise BadVoters(f"the listener {listener} of this controller has no fixed port; give it one in `listeners`")


def own_voter_directory(config: NodeConfig, voters: VoterSet) -> UUID:
    """Return the directory id of this node in the set of first voters. Raises BadVoters if it is missing there, or has
    another port."""
    own = voters.find(config.node_id)
    if own is None or own.key.directory_id is None:
        raise BadVoters(f"this controller's node.id {config.node_id} is not among the first voters {list(voters.ids)}")
    listener = controller_listener(config)
    ports = [one.port for one in (*config.advertised_listeners, *config.listeners) if one.name == listener]
    if own.address.port not in ports:
        raise BadVoters(
            f"the first voters name port {own.address.port} for node {config.node_id}, but its listener {listener} "
            f"has {ports[0] if ports else 'none'}"
        )
    return own.key.directory_id


def require_one_source_of_voters(config: NodeConfig, *, has_choice: bool) -> None:
    """Raise ConfigError unless exactly one source names the first voters: the configuration or the command line."""
    if config.quorum_voters and has_choice:
        raise ConfigError(
            "controller.quorum.voters", "names the voters already; leave out --standalone and its like, or this key"
        )
    if not config.quorum_voters and config.is_controller and not has_choice:
        raise ConfigError(
            "controller.quorum.voters",
            "is not set, so the first voters must be named: add --standalone (this controller alone), "
            "--initial-controllers ID@HOST:PORT:DIRECTORY-ID,… (the same on each of them), or "
            "--no-initial-controllers (this controller is none of them)",
        )


def write_bootstrap_checkpoint(disk: Disk, config: NodeConfig, voters: VoterSet, now_ms: int) -> None:
    """Write the checkpoint that holds the first voters; durable on return."""
    directory = MetadataLog.directory_in(config.metadata_log_dir)
    disk.make_directory(directory)
    store = SnapshotStore(disk, directory)
    writer = store.create(BOOTSTRAP, last_contained_log_timestamp=now_ms, now_ms=now_ms)
    level = ControlRecord(type=ControlRecordType.KRAFT_VERSION, kraft_version=KRAFT_VERSION_WITH_VOTERS)
    writer.append_controls(level, voters_record(voters, controller_listener(config)))
    writer.finish()
