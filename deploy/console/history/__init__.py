"""Async: the pages that show past states of the cluster. `timeline` and `views` compute without I/O; `log` reads the
metadata log, `pages` serves the browser.
"""

from kraft.deploy.console.history.pages import routes

__all__ = ["routes"]
