"""Synchronous: the metadata log read as history, from a folder or from a cluster. Events in order, and the cluster's
metadata at any offset that is still there.

`entries`, `replaying`, `history`, `tree` and `event_fields` are plain functions on values; `folder` reads files;
`cluster` alone is async. May import everything below kraft.client. Secrets never leave here: see `event_fields`.
"""
