"""AutoTopicCreation: create topics named by metadata requests (auto.create.topics.enable), and the internal topics of
coordinators.

At most one creation of each name is in flight. The outcome is not reported: a client that wants the topic requests its
metadata again.
Source: Kafka's AutoTopicCreationManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from kraft.broker.coordinator.internal_topics import topic_settings
from kraft.broker.serving.controller_channel import ForwardRefused
from kraft.broker.serving.gates import QuotaKind
from kraft.broker.serving.request_versions import request_part
from kraft.broker.serving.session import Session
from kraft.node.peers import PeerRequestFailed
from kraft.seam import WireError
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.serving.dynamic_configs import DynamicConfigs
    from kraft.broker.serving.gates import Gates
    from kraft.node.log_limit import LogLimit

log = structlog.get_logger("kraft.broker.auto_topics")

IN_FLIGHT_MAX = 1_000
"""Maximum number of names whose creation is in flight. Further names are skipped; the client's next request tries to
create them again."""


class AutoTopicCreation:
    """Creates topics through the controller, in the background."""

    def __init__(
        self,
        configs: DynamicConfigs,
        gates: Gates,
        log_limit: LogLimit,
        *,
        forward: Callable[..., Awaitable[bytes]],
        start_task: Callable[..., None],
    ) -> None:
        """`forward` is `ControllerChannel.forward`."""
        self._configs = configs
        self._gates = gates
        self._log_limit = log_limit
        self._forward = forward
        self._start_task = start_task
        self._in_flight: set[str] = set()

    def create(self, session: Session, names: Sequence[str]) -> None:
        """Start creating these topics, except those whose creation is in flight. The caller has authorized the client
        and checked the names."""
        wanted = [name for name in names if name not in self._in_flight][: IN_FLIGHT_MAX - len(self._in_flight)]
        if not wanted:
            return
        self._in_flight.update(wanted)
        configs = self._configs
        settings = {name: topic_settings(name, configs) for name in wanted}
        partitions = sum(row.partitions for row in settings.values())
        self._gates.throttle(session, QuotaKind.CONTROLLER_MUTATIONS, partitions)
        creatable = request_part(ApiKey.CREATE_TOPICS, "CreatableTopic")
        config = request_part(ApiKey.CREATE_TOPICS, "CreatableTopicConfig")
        message = messages.build(
            messages.request_class(ApiKey.CREATE_TOPICS),
            topics=tuple(
                creatable(
                    name=name,
                    num_partitions=row.partitions,
                    replication_factor=row.replication_factor,
                    configs=tuple(config(name=key, value=value) for key, value in row.configs),
                )
                for name, row in settings.items()
            ),
            timeout=timedelta(milliseconds=configs.integer("request.timeout.ms")),
        )
        body = messages.encode_request(ApiKey.CREATE_TOPICS, messages.newest_version(ApiKey.CREATE_TOPICS), message)
        self._start_task(self._carry, session, wanted, body)

    async def _carry(self, session: Session, names: Sequence[str], body: bytes) -> None:
        try:
            reply = await self._forward(
                session,
                ApiKey.CREATE_TOPICS,
                body,
                timeout_ms=self._configs.integer("request.timeout.ms"),
            )
            response = messages.decode_response(
                ApiKey.CREATE_TOPICS, messages.newest_version(ApiKey.CREATE_TOPICS), reply
            )
        except (PeerRequestFailed, ForwardRefused, WireError) as failure:
            self._log_limit.warning(
                log, "topics were not created", client=session.client_address, topics=list(names), why=str(failure)
            )
        else:
            for topic in response.topics:
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self._log_limit.warning(
                        log,
                        "topic was not created",
                        client=topic.name,
                        topic=topic.name,
                        error=ErrorCode.of(int(topic.error_code)).name,
                        why=topic.error_message,
                    )
        finally:
            self._in_flight.difference_update(names)
