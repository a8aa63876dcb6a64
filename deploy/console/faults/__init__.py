"""Async: the fault board of a local cluster. `board` is blocking and acts on nodes, `strip` computes without I/O,
`pages` serves the browser.
"""

from kraft.deploy.console.faults.pages import routes

__all__ = ["routes"]
