"""What a zygote imports before it forks, so that every node starts with it and shares its pages.

Two libraries look for optional ones that a development environment has and a node never needs: kio for hypothesis
(which brings pytest), structlog for rich. While nodes' modules are imported these are hidden.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_HIDDEN = ("hypothesis", "pytest", "rich")

_EVERY_NODE = (
    "kraft.runtime",
    "kraft.broker.node.serve",
    "kraft.deploy.launch.child",
    "kraft.deploy.launch.logs",
    "kraft.deploy.launch.node_process",
)
_BROKER = ("kraft.broker.node.broker_node",)


class NodeModules:
    """What is imported so far. Controllers need less, and start while the rest is still being imported."""

    def __init__(self) -> None:
        self._has_broker = False

    def import_for_every_node(self) -> None:
        """What a node of any role runs."""
        _import(_EVERY_NODE)

    def import_for_broker(self) -> None:
        """What a broker runs, with the newest message classes of what it serves; at once if that is done already."""
        if not self._has_broker:
            _import(_BROKER)
            _import_messages()
            self._has_broker = True


def _import(names: tuple[str, ...]) -> None:
    with _hidden(_HIDDEN):
        for name in names:
            importlib.import_module(name)


def _import_messages() -> None:
    from kraft.wire.api_keys import BROKER_APIS
    from kraft.wire.messages import request_class, response_class

    with _hidden(_HIDDEN):
        for key in BROKER_APIS:
            request_class(key)
            response_class(key)


@contextmanager
def _hidden(names: tuple[str, ...]) -> Iterator[None]:
    """Make `import name` fail for modules that are not imported yet."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
