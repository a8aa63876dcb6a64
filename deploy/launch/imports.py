"""Modules that a zygote imports before it forks, so that every node starts with them and shares their memory pages.

Two libraries import optional modules that a development environment has and a node never needs: kio imports hypothesis
(which imports pytest), and structlog imports rich. In the processes of nodes, these modules are hidden permanently.
Otherwise a node that imports message classes while it serves could be blocked for seconds.
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
_USUAL_APIS = (
    *("PRODUCE", "FETCH", "LIST_OFFSETS", "METADATA", "OFFSET_COMMIT", "OFFSET_FETCH", "FIND_COORDINATOR"),
    *("JOIN_GROUP", "HEARTBEAT", "LEAVE_GROUP", "SYNC_GROUP", "API_VERSIONS", "CREATE_TOPICS", "INIT_PRODUCER_ID"),
    *("DESCRIBE_CONFIGS", "DESCRIBE_CLUSTER", "CONSUMER_GROUP_HEARTBEAT"),
)
"""APIs that most clusters serve soon after they start. The message classes of another API are imported by its first
request, in 3 to 20 ms. Importing those of all APIs took 160 ms of CPU, and 4 MB more of a cluster with three
brokers."""


class NodeModules:
    """Imports the modules of nodes in parts. Controllers need fewer modules than brokers, so they start while the
    modules of brokers are being imported."""

    def __init__(self) -> None:
        self._compiled = CompiledCache(cache_path())
        self._has_broker = False
        self._has_messages = False

    def import_for_every_node(self) -> None:
        """Import the modules that a node of any role needs. Hide the modules that no node needs."""
        hide_modules()
        self._import(_EVERY_NODE)

    def import_for_broker(self) -> None:
        """Import the modules that a broker needs. Return at once if that is done already."""
        if not self._has_broker:
            self._import(_BROKER)
            self._has_broker = True

    def import_messages(self) -> None:
        """Import the newest message classes of the APIs that brokers usually serve. This is worthwhile only if several
        brokers share them."""
        if not self._has_messages:
            self._import_messages()
            self._compiled.forget()
            self._has_messages = True

    def _import(self, names: tuple[str, ...]) -> None:
        with stand_ins(), self._compiled.active():
            for name in names:
                importlib.import_module(name)

    def _import_messages(self) -> None:
        from kraft.wire.api_keys import ApiKey
        from kraft.wire.messages import request_class, response_class

        with self._compiled.active():
            for name in _USUAL_APIS:
                request_class(ApiKey[name])
                response_class(ApiKey[name])


def hide_modules(names: tuple[str, ...] = _NOT_FOR_NODES) -> None:
    """Make `import name` fail in this process and in every process forked from it; by default for modules that no node
    needs."""
    for name in names:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
