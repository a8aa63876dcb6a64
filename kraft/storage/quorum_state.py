"""`quorum-state`: epoch, vote and leader of a voter. It is on disk before a message that depends on it is sent.

One line of JSON, as in Kafka. Data version 1 (kraft.version 1) has the voted directory and no voters. Version 0 lists
the static voters. The voters are read and ignored: they come from the log.
Source: KIP-595, KIP-853, Kafka's FileQuorumStateStore.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kraft.seam import Disk, StorageCorrupt
from kraft.storage.partition_metadata import decode_uuid, encode_uuid

QUORUM_STATE = "quorum-state"
DATA_VERSION = 1
EPOCH_MAX = 2**31 - 1
NO_NODE = -1
NO_DIRECTORY = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """Content of the file quorum-state. `leader_id` and `voted_id` are -1 for none. Both may be set, because a voter
    that finds its leader keeps its vote."""

    leader_id: int = NO_NODE
    leader_epoch: int = 0
    voted_id: int = NO_NODE
    voted_directory_id: UUID = NO_DIRECTORY

    def encode(self) -> bytes:
        fields = {
            "leaderId": self.leader_id,
            "leaderEpoch": self.leader_epoch,
            "votedId": self.voted_id,
            "votedDirectoryId": encode_uuid(self.voted_directory_id),
            "data_version": DATA_VERSION,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes, path: str) -> QuorumState:
        """Parse the file. Raises StorageCorrupt if it is invalid, as a voter that lost its vote could vote twice."""
        try:
            fields: dict[str, Any] = json.loads(data)
            version = int(fields["data_version"])
            directory = decode_uuid(fields.get("votedDirectoryId", encode_uuid(NO_DIRECTORY)))
            state = QuorumState(
                leader_id=int(fields["leaderId"]),
                leader_epoch=int(fields["leaderEpoch"]),
                voted_id=int(fields["votedId"]),
                voted_directory_id=directory or NO_DIRECTORY,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageCorrupt(f"{path}: not a quorum state ({error!r}); {_REMEDY}") from error
        if version not in (0, DATA_VERSION):
            raise StorageCorrupt(
                f"{path}: data_version {version}, expected 0 or {DATA_VERSION}; install a newer release"
            )
        if directory is None or not 0 <= state.leader_epoch <= EPOCH_MAX:
            raise StorageCorrupt(f"{path}: {state} cannot be; {_REMEDY}")
        return state


_REMEDY = "format the metadata directory again: the node rejoins with a new directory id"


def read_quorum_state(disk: Disk, directory: str) -> QuorumState | None:
    """Return the saved epoch and vote of this metadata log's voter, or None if there is no file. *Blocking.* Raises
    StorageCorrupt."""
    path = f"{directory}/{QUORUM_STATE}"
    return QuorumState.decode(disk.read_file(path), path) if disk.exists(path) else None


def write_quorum_state(disk: Disk, directory: str, state: QuorumState) -> None:
    """Write the state; durable on return. *Blocking.*"""
    disk.write_file_atomic(f"{directory}/{QUORUM_STATE}", state.encode())
