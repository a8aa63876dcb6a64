"""Async: the pages that show a topic's records. `decoding`, `avro`, `query` and `window` are plain functions on values;
`registry` asks a schema registry, `reading` a cluster, `pages` a browser.
"""

from kraft.deploy.console.messages.pages import routes

__all__ = ["routes"]
