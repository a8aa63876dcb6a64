"""The broker that coordinates a group: find it, and send requests to it.

A join can wait at the coordinator for minutes, and a broker answers the requests of a connection in order. So commits
and heartbeats have separate connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.client.cluster import METADATA_TIMEOUT_MS, RETRIABLE, Cluster
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.configs import ClientConfig
from kraft.client.core.records import KafkaError
from kraft.client.core.topology import BrokerEndpoint
from kraft.seam import Address, WireError
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

GROUP_KEY_TYPE = 0
MEMBERSHIP, HEARTBEATS, COMMITS = "membership", "heartbeats", "commits"
"""Purposes of connections to the coordinator, one connection each."""


class Coordinator:
    """The coordinator of one group. `node` is its broker; None while the broker is not known."""

    def __init__(self, config: ClientConfig, cluster: Cluster, group_id: str) -> None:
        self.group_id = group_id
        self.node: BrokerEndpoint | None = None
        self._config = config
        self._cluster = cluster
        self._clock = cluster.seam.clock

    def forget(self) -> None:
        """Mark the coordinator as unknown, so that the next request finds it again."""
        self.node = None

    async def find(self) -> BrokerEndpoint:
        """Request the coordinator until there is one, and return it. Raise KafkaError if this client may not use the
        group."""
        pause_ms = self._config.retry_backoff_ms
        request = messages.build(
            messages.request_class(ApiKey.FIND_COORDINATOR), key_type=GROUP_KEY_TYPE, coordinator_keys=(self.group_id,)
        )
        while self.node is None:
            answer = await self._cluster.ask_any(
                ApiKey.FIND_COORDINATOR, request, timeout_ms=float("inf"), answer_ms=METADATA_TIMEOUT_MS
            )
            found = answer.coordinators[0]
            code = ErrorCode.of(int(found.error_code))
            if code is ErrorCode.NONE:
                self.node = BrokerEndpoint(int(found.node_id), Address(found.host, int(found.port)))
            elif code in RETRIABLE:
                await self._clock.sleep_ms(pause_ms)
                pause_ms = min(pause_ms * 2, self._config.retry_backoff_max_ms)
            else:
                raise KafkaError(code, f"the coordinator of group {self.group_id}: {found.error_message or code.name}")
        return self.node

    async def ask(self, key: ApiKey, purpose: str, *, timeout_ms: float, **fields: Any) -> Any:
        """Send one request and return the response. Return None if the connection failed; the coordinator is then
        unknown, and the next call finds it again."""
        request = messages.build(messages.request_class(key), **fields)
        return await self.ask_in_version(key, purpose, lambda _: request, timeout_ms=timeout_ms)

    async def ask_in_version(self, key: ApiKey, purpose: str, build: Callable[[int], Any], *, timeout_ms: float) -> Any:
        """Do the same as `ask`. `build(version)` returns the request for the version that is sent."""
        node = await self.find()
        try:
            link = await self._cluster.links.get(node.address, purpose)
            return await link.request(key, build(link.version(key)), timeout_ms=timeout_ms)
        except (*CONNECTION_FAILURES, WireError):
            link_now = self._cluster.links.live(node.address, purpose)
            if link_now is not None:
                # close the connection, so that a late response cannot be taken for the response to another request
                link_now.close()
            if self.node is node:
                self.forget()
            await self._clock.sleep_ms(self._config.retry_backoff_ms)
            return None
