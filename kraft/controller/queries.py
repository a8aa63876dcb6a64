"""Requests that a controller answers without a decision: ApiVersions, DescribeQuorum, DescribeCluster (KIP-919), and
those for this node's loggers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kraft.control import Requester
from kraft.control.decision import ANONYMOUS
from kraft.control.features import SUPPORTED_FEATURES
from kraft.controller.logger_configs import alter_levels, describe_loggers
from kraft.quorum.quorum import ReplicaDescription
from kraft.wire import messages
from kraft.wire.api_keys import CONTROLLER_APIS, ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.error_answers import error_answer
from kraft.wire.rpc import FIRST_INTERNAL_KEY, encode_rpc, response_classes
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.controller.controller import Controller

METADATA_TOPIC = "__cluster_metadata"
ENDPOINTS_OF_BROKERS, ENDPOINTS_OF_CONTROLLERS = 1, 2
FIRST_WITH_ZERO_MINIMUM = 4


def handle_api_versions(controller: Controller, request: Request) -> None:
    """Answer ApiVersions: the keys of this listener, and the cluster's features. A request in an unknown version gets a
    body of version 0 with error 35 (UNSUPPORTED_VERSION)."""
    served = CONTROLLER_APIS[ApiKey.API_VERSIONS]
    if not served.min <= request.api_version <= served.max:
        head = struct.pack(">hi", ErrorCode.UNSUPPORTED_VERSION, 1)
        request.respond(head + struct.pack(">hhh", served.key, served.min, served.max))
        return
    messages.decode_request(ApiKey.API_VERSIONS, request.api_version, request.body)
    response = api_versions_response(controller, request.api_version)
    request.respond(messages.encode_response(ApiKey.API_VERSIONS, request.api_version, response))
    request.connection.meter.count_answer(request.api_key, response)


def api_versions_response(controller: Controller, version: int) -> Any:
    """Return an ApiVersionsResponse of the newest version. Features whose range starts at 0 are left out for a request
    before version 4."""
    cls = messages.response_class(ApiKey.API_VERSIONS)
    key_class = messages.nested_class(cls, "api_keys")
    supported_class = messages.nested_class(cls, "supported_features")
    finalized_class = messages.nested_class(cls, "finalized_features")
    image = controller.publisher.image
    return messages.build(
        cls,
        api_keys=[
            messages.build(key_class, api_key=api.key, min_version=api.min, max_version=api.max)
            for _, api in sorted(CONTROLLER_APIS.items())
        ],
        supported_features=[
            messages.build(supported_class, name=one.name, min_version=one.min_level, max_version=one.max_level)
            for one in SUPPORTED_FEATURES
            if one.min_level > 0 or version >= FIRST_WITH_ZERO_MINIMUM
        ],
        finalized_features_epoch=image.offset if image.features else -1,
        finalized_features=[
            messages.build(
                finalized_class,
                name=name,
                max_version_level=image.features[name],
                min_version_level=image.features[name],
            )
            for name in sorted(image.features)
        ],
    )


def describe_quorum(controller: Controller, requester: Requester, message: Any) -> Any:
    """Answer DescribeQuorum: voters and observers as the leader sees them. A node that does not lead names the leader
    instead."""
    cls = messages.response_class(ApiKey.DESCRIBE_QUORUM)
    if not controller.authorize(requester, "DESCRIBE", "CLUSTER", "kafka-cluster"):
        return messages.build(cls, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    topic_class = messages.nested_class(cls, "topics")
    asked = [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in message.topics]
    if asked != [(METADATA_TOPIC, [0])]:
        topics = [
            messages.build(
                topic_class,
                topic_name=name,
                partitions=[_refused(topic_class, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in indexes],
            )
            for name, indexes in asked
        ]
        return messages.build(cls, topics=topics)
    partition = (
        _described(controller, topic_class)
        if controller.queue.is_active
        else _refused(topic_class, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    )
    topic = messages.build(topic_class, topic_name=METADATA_TOPIC, partitions=[partition])
    return messages.build(cls, topics=[topic], nodes=_nodes(controller, cls))


def _refused(topic_class: Any, index: int, code: ErrorCode) -> Any:
    cls = messages.nested_class(topic_class, "partitions")
    return messages.build(cls, partition_index=index, error_code=code, leader_id=-1, leader_epoch=-1, high_watermark=-1)


def _described(controller: Controller, topic_class: Any) -> Any:
    partition_class = messages.nested_class(topic_class, "partitions")
    replica_class = messages.nested_class(partition_class, "current_voters")
    quorum = controller.quorum.describe()

    def replica(one: ReplicaDescription) -> Any:
        return messages.build(
            replica_class,
            replica_id=one.replica_id,
            replica_directory_id=_directory_id(one.directory_id),
            log_end_offset=one.log_end_offset,
            last_fetch_timestamp=one.last_fetch_ms,
            last_caught_up_timestamp=one.last_caught_up_ms,
        )

    return messages.build(
        partition_class,
        partition_index=0,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[replica(one) for one in quorum.voters],
        observers=[replica(one) for one in quorum.observers],
    )


def _directory_id(value: str) -> UUID | None:
    try:
        return UUID(value)
    except ValueError:
        return None


def _nodes(controller: Controller, cls: Any) -> list[Any]:
    """Return every voter with its controller listeners."""
    node_class = messages.nested_class(cls, "nodes")
    listener_class = messages.nested_class(node_class, "listeners")
    name = controller.config.controller_listener_names[0]
    return [
        messages.build(
            node_class,
            node_id=node_id,
            listeners=[messages.build(listener_class, name=name, host=host, port=port)],
        )
        for node_id, host, port in controller.quorum.describe().endpoints
    ]


def describe_cluster(controller: Controller, requester: Requester, message: Any) -> Any:
    """Answer DescribeCluster for clients that bootstrap from controllers: it lists controllers instead of brokers. On a
    controller it needs the right to alter the cluster."""
    cls = messages.response_class(ApiKey.DESCRIBE_CLUSTER)
    if not controller.authorize(requester, "ALTER", "CLUSTER", "kafka-cluster"):
        return messages.build(cls, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if message.endpoint_type != ENDPOINTS_OF_CONTROLLERS:
        known = message.endpoint_type == ENDPOINTS_OF_BROKERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        text = (
            "this is a controller's listener: ask a broker for broker endpoints"
            if known
            else f"endpoint type {message.endpoint_type} is not known; 1 is brokers, 2 is controllers"
        )
        return messages.build(cls, error_code=code, error_message=text, endpoint_type=ENDPOINTS_OF_CONTROLLERS)
    broker_class = messages.nested_class(cls, "brokers")
    quorum = controller.quorum.describe()
    leader_id = controller.quorum.leader_and_epoch[0]
    return messages.build(
        cls,
        endpoint_type=ENDPOINTS_OF_CONTROLLERS,
        cluster_id=controller.cluster_id,
        controller_id=-1 if leader_id is None else leader_id,
        brokers=[
            messages.build(broker_class, broker_id=node_id, host=host, port=port)
            for node_id, host, port in quorum.endpoints
        ],
    )


READS: Mapping[int, Callable[[Any, Requester, Any], Any]] = MappingProxyType(
    {
        ApiKey.DESCRIBE_QUORUM: describe_quorum,
        ApiKey.DESCRIBE_CLUSTER: describe_cluster,
        ApiKey.DESCRIBE_CONFIGS: describe_loggers,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_levels,
    }
)
"""API key → handler: (controller, requester, request of the newest version) -> response of the newest version."""


def requester_of(request: Request) -> Requester:
    """Return the identity of the client at the other end of a connection to the controller listener."""
    transport = request.connection.transport
    principal = ANONYMOUS.principal if transport.peer_principal is None else f"User:{transport.peer_principal}"
    return Requester(principal, transport.peer_host, request.client_id)


def handle_read(api_key: ApiKey, controller: Controller, request: Request) -> None:
    """Answer a request that only reads committed state."""
    message = messages.decode_request(api_key, request.api_version, request.body)
    response = READS[api_key](controller, requester_of(request), message)
    request.respond(messages.encode_response(api_key, request.api_version, response))
    request.connection.meter.count_answer(api_key, response)


def answer_failed(request: Request) -> None:
    """Report a failed request in its own response type. If the connection were closed instead, the sender would
    conclude that this controller has stopped, and would repeat the request."""
    key, version = request.api_key, request.api_version
    if key >= FIRST_INTERNAL_KEY:
        answer = response_classes()[key](error_code=ErrorCode.UNKNOWN_SERVER_ERROR)  # type: ignore[call-arg]
        request.respond(encode_rpc(answer, version))
        request.connection.meter.count_answer(key, answer)
        return
    body = error_answer(key, version, request.body, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert body is not None, "only Produce may want no answer"
    request.respond(*body)
    request.connection.meter.count_error(key, ErrorCode.UNKNOWN_SERVER_ERROR)


_NOT_DECIDED = MappingProxyType(
    {
        ErrorCode.NOT_CONTROLLER: "this node is not the active controller",
        ErrorCode.REQUEST_TIMED_OUT: "the active controller is busy; try again",
        ErrorCode.UNKNOWN_SERVER_ERROR: "the active controller failed to handle the request; its log says why",
    }
)


def not_decided(api_key: int, error: ErrorCode) -> Any:
    """Return the response with this error to a request that needs the active controller but cannot be decided on this
    node now."""
    return messages.build(messages.response_class(api_key), error_code=error, error_message=_NOT_DECIDED[error])
