"""How reading the metadata log fails. Each text says what was asked for, what there is, and what to do."""

from __future__ import annotations


class MetadataLogError(Exception):
    """The metadata log cannot be read, or holds what this release cannot read."""


class NotInLog(MetadataLogError):
    """There is no such folder, offset or time."""


class LogRefused(MetadataLogError):
    """The cluster does not let this client read its metadata log."""


class BeginsInSnapshot(MetadataLogError):
    """The log's first events are in a snapshot, which only nodes can fetch."""
