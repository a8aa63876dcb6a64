"""Async: the fault board of a local cluster. `board` is blocking and acts on nodes, `strip` is plain functions on
values, `pages` serves the browser.
"""

from kraft.deploy.console.faults.pages import routes

__all__ = ["routes"]
