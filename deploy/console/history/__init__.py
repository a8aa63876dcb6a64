"""Async: the pages that show the cluster as it was. `timeline` and `views` are plain functions on values; `log`
reads the metadata log, `pages` a browser.
"""

from kraft.deploy.console.history.pages import routes

__all__ = ["routes"]
