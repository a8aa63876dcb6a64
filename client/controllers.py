"""A cluster of controllers to which requests are sent directly, without a broker in between. Source: KIP-919
(`bootstrap.controllers`).

An admin client uses this class when no broker is up, or for a node that is only a controller. Controllers answer
requests about the quorum, features and their log levels, but not about topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kraft.client.cluster import METADATA_TIMEOUT_MS, REQUEST_TIMEOUT_MS, Cluster
from kraft.client.core.records import KafkaError
from kraft.client.core.topology import BrokerEndpoint
from kraft.seam import Address
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

ENDPOINTS_OF_CONTROLLERS = 2


class Controllers(Cluster):
    """A Cluster whose nodes are controllers: `brokers` has the controllers, and `controller_id` is the active one."""

    node_kind = "controller"

    async def refresh(
        self, topics: Iterable[str] | None, *, timeout_ms: float = REQUEST_TIMEOUT_MS
    ) -> dict[str, ErrorCode]:
        """Request the list of controllers, and the id of the active one. Raise KafkaError if the node is a broker or
        rejects the request."""
        key = ApiKey.DESCRIBE_CLUSTER
        request = messages.build(messages.request_class(key), endpoint_type=ENDPOINTS_OF_CONTROLLERS)
        told = await self.ask_any(key, request, timeout_ms=timeout_ms, answer_ms=METADATA_TIMEOUT_MS)
        code = ErrorCode.of(int(told.error_code))
        if code is not ErrorCode.NONE:
            raise KafkaError(code, told.error_message or "the controllers cannot be listed")
        self.cluster_id = told.cluster_id
        self.controller_id = int(told.controller_id)
        self.brokers = {
            int(one.broker_id): BrokerEndpoint(int(one.broker_id), Address(one.host, int(one.port)))
            for one in told.brokers
        }
        return {}

    async def ask_controller(self, key: ApiKey, message: Any, *, timeout_ms: float) -> Any:
        """Send a request to the active controller. While the active controller is not known, send it to any controller,
        which returns an error."""
        await self.refresh([], timeout_ms=timeout_ms)
        if self.controller_id not in self.brokers:
            return await self.ask_any(key, message, timeout_ms=timeout_ms)
        link = await self.link(self.controller_id, "admin")
        return await link.request(key, message, timeout_ms=timeout_ms)
