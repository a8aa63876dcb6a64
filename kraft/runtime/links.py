"""Link policies: what happens to the links that this node dials. All pass, unless a node is told to inject faults."""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraft.seam import LinkPolicy

LinkKey = tuple[int | None, str]
"""(node id, listener) of a dialled peer."""


class LinkPolicies:
    """A policy per dialled peer, changed while the node runs. What is not set is OPEN."""

    def __init__(self) -> None:
        self._policies: dict[LinkKey, LinkPolicy] = {}
        self._watchers: list[Callable[[LinkKey, LinkPolicy], None]] = []
        self._changed = trio.Event()

    def policy(self, key: LinkKey) -> LinkPolicy:
        return self._policies.get(key, LinkPolicy.OPEN)

    def set(self, node_id: int, listener: str, policy: LinkPolicy) -> None:
        """Apply `policy` from now on to the link to this peer, also to connections that exist."""
        key = (node_id, listener)
        self._policies[key] = policy
        for watcher in self._watchers:
            watcher(key, policy)
        self._changed.set()
        self._changed = trio.Event()

    def watch(self, watcher: Callable[[LinkKey, LinkPolicy], None]) -> None:
        self._watchers.append(watcher)

    async def wait_changed(self) -> None:
        await self._changed.wait()
