"""Link policies: what happens to the links that this node dials. All pass, unless a node is told to inject faults."""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraft.seam import LinkPolicy, LinkQuality

LinkKey = tuple[int | None, str]
"""(node id, listener) of a dialled peer."""
WELL = LinkQuality()
Qualities = tuple[LinkQuality, LinkQuality]
"""How that fares which a node sends on a link, and that which it receives."""


class LinkPolicies:
    """A policy per dialled peer, changed while the node runs. What is not set is OPEN."""

    def __init__(self) -> None:
        self._policies: dict[LinkKey, LinkPolicy] = {}
        self._nodes: dict[int, LinkPolicy] = {}
        """Of peers that have one policy on all listeners."""
        self.degraded: dict[int, Qualities] = {}
        """Of all links to a node, where not both ways are well."""
        self._dialled: dict[LinkKey, None] = {}
        self._watchers: list[Callable[[LinkKey, LinkPolicy], None]] = []
        self._changed = trio.Event()

    def policy(self, key: LinkKey) -> LinkPolicy:
        """What is to be done to a dial of this peer now."""
        self._dialled[key] = None
        node_id, _ = key
        of_node = LinkPolicy.OPEN if node_id is None else self._nodes.get(node_id, LinkPolicy.OPEN)
        return self._policies.get(key, of_node)

    def set(self, node_id: int, listener: str, policy: LinkPolicy) -> None:
        """Apply `policy` from now on to the link to this peer, also to connections that exist."""
        self._policies[node_id, listener] = policy
        self._tell([(node_id, listener)])

    def set_all(self, node_id: int, policy: LinkPolicy) -> None:
        """Apply `policy` from now on to every link to this node, whatever its listener."""
        self._nodes[node_id] = policy
        self._policies = {key: value for key, value in self._policies.items() if key[0] != node_id}
        self._tell([key for key in self._dialled if key[0] == node_id])

    def qualities(self, key: LinkKey) -> Qualities:
        """How bytes fare on a connection that was dialled to this peer."""
        return self.degraded.get(key[0], (WELL, WELL)) if key[0] is not None else (WELL, WELL)

    def set_qualities(self, node_id: int, sends: LinkQuality, receives: LinkQuality) -> None:
        """From now on bytes fare so on every link to this node. `set_all`, or `set`, is what applies it."""
        self.degraded.pop(node_id, None)
        if (sends, receives) != (WELL, WELL):
            self.degraded[node_id] = sends, receives

    def is_open(self, key: LinkKey) -> bool:
        """Whether a dial gets an answer: that takes both ways."""
        return self.policy(key) is LinkPolicy.OPEN and not any(way.is_cut for way in self.qualities(key))

    def clear(self) -> None:
        """Let everything pass again."""
        keys = [key for key in self._dialled if self.policy(key) is not LinkPolicy.OPEN or key[0] in self.degraded]
        self.degraded.clear()
        self._policies.clear()
        self._nodes.clear()
        self._tell(keys)

    @property
    def listed(self) -> list[tuple[int, str | None, LinkPolicy]]:
        """All policies but OPEN: node id, listener (None: every one), policy."""
        rows: list[tuple[int, str | None, LinkPolicy]] = [(node, None, policy) for node, policy in self._nodes.items()]
        rows += [(node, listener, policy) for (node, listener), policy in self._policies.items() if node is not None]
        return [row for row in rows if row[2] is not LinkPolicy.OPEN]

    def watch(self, watcher: Callable[[LinkKey, LinkPolicy], None]) -> None:
        """`watcher` is told each key whose connections are to be treated anew."""
        self._watchers.append(watcher)

    async def wait_changed(self) -> None:
        """Suspend until some policy is another one."""
        await self._changed.wait()

    def _tell(self, keys: list[LinkKey]) -> None:
        for key in keys:
            policy = self.policy(key)
            for watcher in self._watchers:
                watcher(key, policy)
        self._changed.set()
        self._changed = trio.Event()
