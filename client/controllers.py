"""Controllers as the cluster that a client asks, with no broker in between. Source: KIP-919 (`bootstrap.controllers`).

What an admin client needs where no broker is up, or of a node that is only a controller: the quorum, features, the
levels of its loggers. Of topics controllers say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kraft.client.cluster import METADATA_TIMEOUT_MS, REQUEST_TIMEOUT_MS, Cluster
from kraft.client.core.records import KafkaError
from kraft.client.core.topology import Broker
from kraft.seam import Address
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

ENDPOINTS_OF_CONTROLLERS = 2


class Controllers(Cluster):
    """`brokers` are the controllers; `controller_id` is the active one."""

    node_kind = "controller"

    async def refresh(
        self, topics: Iterable[str] | None, *, timeout_ms: float = REQUEST_TIMEOUT_MS
    ) -> dict[str, ErrorCode]:
        """Learn the controllers and which one is active. KafkaError if a broker answers, or one that refuses."""
        key = ApiKey.DESCRIBE_CLUSTER
        request = messages.build(messages.request_class(key), endpoint_type=ENDPOINTS_OF_CONTROLLERS)
        told = await self.ask_any(key, request, timeout_ms=timeout_ms, answer_ms=METADATA_TIMEOUT_MS)
        code = ErrorCode.of(int(told.error_code))
        if code is not ErrorCode.NONE:
            raise KafkaError(code, told.error_message or "the controllers may not be listed")
        self.cluster_id = told.cluster_id
        self.controller_id = int(told.controller_id)
        self.brokers = {
            int(one.broker_id): Broker(int(one.broker_id), Address(one.host, int(one.port))) for one in told.brokers
        }
        return {}

    async def ask_controller(self, key: ApiKey, message: Any, *, timeout_ms: float) -> Any:
        """Ask the active controller; while none is known another one, which says so."""
        await self.refresh([], timeout_ms=timeout_ms)
        if self.controller_id not in self.brokers:
            return await self.ask_any(key, message, timeout_ms=timeout_ms)
        link = await self.link(self.controller_id, "admin")
        return await link.request(key, message, timeout_ms=timeout_ms)
