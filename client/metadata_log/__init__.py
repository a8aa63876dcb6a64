"""Synchronous: read the metadata log as history, from a folder or from a cluster. The history has the events in order,
and the cluster's metadata at any offset that still exists.

`entries`, `replaying`, `history`, `tree` and `event_fields` are functions without I/O; `folder` reads files; only
`cluster` is async. May import everything below kraft.client. Secrets are hidden; see `event_fields`.
"""
