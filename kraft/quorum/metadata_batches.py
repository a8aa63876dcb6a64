"""Metadata batches: conversion between events or control records and record batches. Plain functions on bytes.

A data batch holds event values. A control batch (leader change, voters) holds none, and is delivered empty so that
offsets advance.
Source: KIP-595, KIP-853, docs/decisions/06-metadata-log.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.raft.log_view import BatchSummary
from kraft.raft.ready import AppendEvents, AppendLeaderChange, AppendVoters
from kraft.seam import Address, Buffer, WireError
from kraft.wire.records import BatchHeader, check_crc, decode_values, encode_values, iter_headers
from kraft.wire.records.control_records import (
    ControlRecord,
    ControlRecordType,
    LeaderChange,
    VoterEndpoint,
    VoterEntry,
    VoterKey,
    decode_controls,
    encode_control,
)


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """One committed batch of the metadata log; `records` are event values, empty for a control batch."""

    base_offset: int
    next_offset: int
    epoch: int
    append_time_ms: int
    size_bytes: int
    records: tuple[bytes, ...]


def encode_action(action: AppendEvents | AppendLeaderChange | AppendVoters, listener: str, now_ms: int) -> bytearray:
    """Return the record batch for an append that the leader's core requests."""
    if isinstance(action, AppendEvents):
        return encode_values(
            action.payload, timestamp_ms=now_ms, base_offset=action.base_offset, leader_epoch=action.epoch
        )
    if isinstance(action, AppendLeaderChange):
        change = LeaderChange(
            action.leader_id,
            tuple(VoterKey(node_id) for node_id in action.voter_ids),
            tuple(VoterKey(node_id) for node_id in action.granting_ids),
        )
        record = ControlRecord(type=ControlRecordType.LEADER_CHANGE, leader_change=change)
    else:
        record = voters_record(action.voters, listener)
    return encode_control(record, base_offset=action.base_offset, leader_epoch=action.epoch, timestamp_ms=now_ms)


def voters_record(voters: VoterSet, listener: str) -> ControlRecord:
    entries = tuple(
        VoterEntry(
            voter.key.node_id,
            voter.key.directory_id,
            (VoterEndpoint(listener, voter.address.host, voter.address.port),),
        )
        for voter in voters.voters
    )
    return ControlRecord(type=ControlRecordType.VOTERS, voters=entries)


def voters_in(controls: Sequence[ControlRecord]) -> VoterSet | None:
    """Return the voter set in these control records, None if they do not name one. Raises WireError."""
    for record in controls:
        if record.type is ControlRecordType.VOTERS:
            try:
                return VoterSet(tuple(_voter(entry) for entry in record.voters))
            except ValueError as error:
                raise WireError(f"invalid voters record: {error}") from None
    return None


def _voter(entry: VoterEntry) -> Voter:
    if not entry.endpoints:
        raise ValueError(f"voter {entry.voter_id} has no endpoint")
    endpoint = entry.endpoints[0]
    return Voter(ReplicaKey(entry.voter_id, entry.directory_id), Address(endpoint.host, endpoint.port))


def summarise(data: Buffer) -> tuple[BatchSummary, ...]:
    """Return a summary of each batch of a fetch response, for the core; the content in a summary is what listeners will
    get. Raises WireError if a batch is damaged or incomplete, or if a record does not parse."""
    summaries: list[BatchSummary] = []
    end = 0
    for position, header in iter_headers(data):
        if not check_crc(data, position, header):
            raise WireError(f"the metadata batch at offset {header.base_offset} has a wrong CRC")
        summaries.append(replace(summary_of(data, position, header), content=batch_of(data, position, header)))
        end = position + header.size_bytes
    if end != len(data):
        raise WireError(f"{len(data) - end} bytes after the last whole metadata batch")
    return tuple(summaries)


def summary_of(data: Buffer, position: int, header: BatchHeader) -> BatchSummary:
    voters = voters_in(decode_controls(data, position)) if header.is_control else None
    return BatchSummary(header.base_offset, header.next_offset, header.partition_leader_epoch, voters)


def batch_of(data: Buffer, position: int, header: BatchHeader) -> CommittedBatch:
    values: tuple[bytes, ...] = ()
    if not header.is_control:
        values = tuple(decode_values(data, position))
    return committed_batch(header, values)


def committed_batch(header: BatchHeader, values: tuple[bytes, ...]) -> CommittedBatch:
    """Return the batch with these event values in the form that listeners get."""
    return CommittedBatch(
        header.base_offset,
        header.next_offset,
        header.partition_leader_epoch,
        header.max_timestamp,
        header.size_bytes,
        values,
    )
