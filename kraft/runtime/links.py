"""Link policies: faults on the links that this node dials. All links are open unless faults are injected."""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraft.seam import LinkPolicy, LinkQuality

LinkKey = tuple[int | None, str]
"""(node id, listener) of a dialled peer."""
WELL = LinkQuality()
Qualities = tuple[LinkQuality, LinkQuality]
"""(quality of what a node sends, quality of what it receives) on a link."""


class LinkPolicies:
    """A policy per dialled peer, changed while the node runs. The default is OPEN."""

    def __init__(self) -> None:
        self._policies: dict[LinkKey, LinkPolicy] = {}
        self._nodes: dict[int, LinkPolicy] = {}
        """Node id → policy, of peers that have one policy on all listeners."""
        self.degraded: dict[int, Qualities] = {}
        """Node id → qualities of all links to it, where at least one direction is degraded."""
        self._dialled: dict[LinkKey, None] = {}
        self._watchers: list[Callable[[LinkKey, LinkPolicy], None]] = []
        self._changed = trio.Event()

    def policy(self, key: LinkKey) -> LinkPolicy:
        """Return the policy for a dial of this peer now."""
        self._dialled[key] = None
        node_id, _ = key
        of_node = LinkPolicy.OPEN if node_id is None else self._nodes.get(node_id, LinkPolicy.OPEN)
        return self._policies.get(key, of_node)

    def set(self, node_id: int, listener: str, policy: LinkPolicy) -> None:
        """Apply `policy` from now on to the link to this peer, including existing connections."""
        self._policies[node_id, listener] = policy
        self._notify_watchers([(node_id, listener)])

    def set_all(self, node_id: int, policy: LinkPolicy) -> None:
        """Apply `policy` from now on to every link to this node, whatever its listener."""
        self._nodes[node_id] = policy
        self._policies = {key: value for key, value in self._policies.items() if key[0] != node_id}
        self._notify_watchers([key for key in self._dialled if key[0] == node_id])

    def qualities(self, key: LinkKey) -> Qualities:
        """Return the qualities of a connection that was dialled to this peer."""
        return self.degraded.get(key[0], (WELL, WELL)) if key[0] is not None else (WELL, WELL)

    def set_qualities(self, node_id: int, sends: LinkQuality, receives: LinkQuality) -> None:
        """Set the qualities of every link to this node. They take effect with `set_all` or `set`."""
        self.degraded.pop(node_id, None)
        if (sends, receives) != (WELL, WELL):
            self.degraded[node_id] = sends, receives

    def is_open(self, key: LinkKey) -> bool:
        """Return whether a dial over this link gets an answer: the policy is OPEN and neither direction is cut."""
        return self.policy(key) is LinkPolicy.OPEN and not any(way.is_cut for way in self.qualities(key))

    def clear(self) -> None:
        """Remove all faults."""
        keys = [key for key in self._dialled if self.policy(key) is not LinkPolicy.OPEN or key[0] in self.degraded]
        self.degraded.clear()
        self._policies.clear()
        self._nodes.clear()
        self._notify_watchers(keys)

    @property
    def listed(self) -> list[tuple[int, str | None, LinkPolicy]]:
        """Return all policies but OPEN: node id, listener (None: every one), policy."""
        rows: list[tuple[int, str | None, LinkPolicy]] = [(node, None, policy) for node, policy in self._nodes.items()]
        rows += [(node, listener, policy) for (node, listener), policy in self._policies.items() if node is not None]
        return [row for row in rows if row[2] is not LinkPolicy.OPEN]

    def watch(self, watcher: Callable[[LinkKey, LinkPolicy], None]) -> None:
        """Call `watcher` with each key whose connections must be updated."""
        self._watchers.append(watcher)

    async def wait_changed(self) -> None:
        """Suspend until some policy changes."""
        await self._changed.wait()

    def _notify_watchers(self, keys: list[LinkKey]) -> None:
        for key in keys:
            policy = self.policy(key)
            for watcher in self._watchers:
                watcher(key, policy)
        self._changed.set()
        self._changed = trio.Event()
