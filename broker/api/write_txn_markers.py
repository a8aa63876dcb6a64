"""WriteTxnMarkers: append the markers of a transaction coordinator to partitions that this broker leads.

The request is answered when each of its markers is committed or rejected. The client needs CLUSTER_ACTION or ALTER on
the cluster: an administrator who ends a hanging transaction sends the same request.
Source: WriteTxnMarkersRequest 1 to 2, KIP-664, KIP-1228.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kraft.broker.coordinator.marker_writer import MarkerToWrite
from kraft.broker.serving.gates import Operation
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

KEY = ApiKey.WRITE_TXN_MARKERS

MarkerErrors = dict[tuple[int, str, int], ErrorCode]
"""Error code of each marker, by (the marker's position in the request, topic, partition)."""


def handle_write_txn_markers(context: HandlerContext, request: Request, session: Session) -> None:
    """Write every marker of the request. Each one succeeds or fails independently."""
    message, gates = read(request), context.gates
    wanted = [
        (number, topic.name, index)
        for number, marker in enumerate(message.markers)
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    errors: MarkerErrors = {}
    missing = len(wanted)

    def written(key: tuple[int, str, int], error: ErrorCode) -> None:
        nonlocal missing
        errors[key] = error
        missing -= 1
        if not missing:
            context.finish(request, lambda: answer(request, _response(message, errors)))

    is_allowed = gates.authorize_cluster(session, Operation.CLUSTER_ACTION)
    if not is_allowed and not gates.authorize_cluster(session, Operation.ALTER):
        errors = dict.fromkeys(wanted, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        wanted = []
    if not wanted:
        answer(request, _response(message, errors))
    for key in wanted:
        number, topic, index = key
        context.marker_writer.write(topic, index, _marker(message.markers[number]), partial(written, key))


def _marker(row: Any) -> MarkerToWrite:
    return MarkerToWrite(
        row.producer_id, row.producer_epoch, row.coordinator_epoch, row.transaction_result, row.transaction_version
    )


def _response(message: Any, errors: MarkerErrors) -> Any:
    marker_part = part(KEY, "WritableTxnMarkerResult")
    topic_part = part(KEY, "WritableTxnMarkerTopicResult")
    row = part(KEY, "WritableTxnMarkerPartitionResult")
    return respond(
        KEY,
        markers=[
            marker_part(
                producer_id=marker.producer_id,
                topics=[
                    topic_part(
                        name=topic.name,
                        partitions=[
                            row(partition_index=index, error_code=errors[number, topic.name, index])
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for number, marker in enumerate(message.markers)
        ],
    )
