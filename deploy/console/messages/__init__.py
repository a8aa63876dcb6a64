"""Async: the pages that show a topic's records. `decoding`, `avro`, `query` and `window` compute without I/O.
`registry` queries a schema registry, `reading` queries a cluster, and `pages` serves the browser.
"""

from kraft.deploy.console.messages.pages import routes

__all__ = ["routes"]
