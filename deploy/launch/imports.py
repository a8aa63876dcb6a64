"""What a zygote imports before it forks, so that every node starts with it and shares its pages.

Two libraries look for optional ones that a development environment has and a node never needs: kio for hypothesis
(which brings pytest), structlog for rich. In the processes of nodes these are hidden, for good: a node imports message
classes also while it serves, and must not stand still for seconds then.
"""

from __future__ import annotations

import importlib
import sys

from kraft.deploy.launch.compiled_cache import CompiledCache, cache_path
from kraft.deploy.launch.stand_ins import stand_ins

TEST_TOOLS = ("hypothesis", "pytest")
_NOT_FOR_NODES = (*TEST_TOOLS, "rich")

_EVERY_NODE = (
    "kraft.runtime.open",
    "kraft.runtime.tls",
    "kraft.broker.node.serve",
    "kraft.deploy.launch.child",
    "kraft.deploy.launch.logs",
    "kraft.deploy.launch.node_process",
)
_BROKER = ("kraft.broker.node.broker_node",)


class NodeModules:
    """What is imported so far. Controllers need less, and start while the rest is still being imported."""

    def __init__(self) -> None:
        self._compiled = CompiledCache(cache_path())
        self._has_broker = False
        self._has_messages = False

    def import_for_every_node(self) -> None:
        """What a node of any role runs. Hides what none needs."""
        hide_modules()
        self._import(_EVERY_NODE)

    def import_for_broker(self) -> None:
        """What a broker runs; at once if that is done already."""
        if not self._has_broker:
            self._import(_BROKER)
            self._has_broker = True

    def import_messages(self) -> None:
        """The newest message classes of what brokers serve: worth it where several share them."""
        if not self._has_messages:
            self._import_messages()
            self._compiled.forget()
            self._has_messages = True

    def _import(self, names: tuple[str, ...]) -> None:
        with stand_ins(), self._compiled.active():
            for name in names:
                importlib.import_module(name)

    def _import_messages(self) -> None:
        from kraft.wire.api_keys import BROKER_APIS
        from kraft.wire.messages import request_class, response_class

        with self._compiled.active():
            for key in BROKER_APIS:
                request_class(key)
                response_class(key)


def hide_modules(names: tuple[str, ...] = _NOT_FOR_NODES) -> None:
    """Make `import name` fail, from now on and in every process forked from this one; by default for what no node
    needs."""
    for name in names:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
