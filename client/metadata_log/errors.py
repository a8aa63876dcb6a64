"""Errors of reading the metadata log. Each text names the request, what exists, and what to do next."""

from __future__ import annotations


class MetadataLogError(Exception):
    """The metadata log cannot be read, or contains something that this release cannot read."""


class NotInLog(MetadataLogError):
    """The requested folder, offset or time does not exist."""


class LogRefused(MetadataLogError):
    """The cluster does not allow this client to read its metadata log."""


class BeginsInSnapshot(MetadataLogError):
    """The log's first events are in a snapshot, which only nodes can fetch."""
