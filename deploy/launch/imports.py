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

_NODE_MODULES = ("kraft.runtime", "kraft.broker.node.serve", "kraft.deploy.launch.child", "kraft.deploy.launch.logs")


def import_node_modules() -> None:
    """Import all that a node of any role runs, and the newest message classes of what it serves."""
    with _hidden(_HIDDEN):
        for name in _NODE_MODULES:
            importlib.import_module(name)
        _import_messages()


def _import_messages() -> None:
    from kraft.wire.api_keys import BROKER_APIS, CONTROLLER_APIS
    from kraft.wire.messages import request_class, response_class

    for key in {*BROKER_APIS, *CONTROLLER_APIS}:
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
