"""AlterReplicaLogDirs: start moving replicas of this broker to another of its log directories (KIP-113).

The response reports that a move has begun. DescribeLogDirs shows its progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft.broker.serving.gates import Operation
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

KEY = ApiKey.ALTER_REPLICA_LOG_DIRS


def handle_alter_replica_log_dirs(context: HandlerContext, request: Request, session: Session) -> None:
    """Start the moves; each replica has its own result. The client needs ALTER on the cluster."""
    message = read(request)
    is_allowed = context.gates.authorize_cluster(session, Operation.ALTER)
    result = part(KEY, "AlterReplicaLogDirPartitionResult")
    topics: dict[str, list[Any]] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if is_allowed:
                    code = context.moves.alter(topic.name, index, directory.path)
                topics.setdefault(topic.name, []).append(result(partition_index=index, error_code=code))
    topic_part = part(KEY, "AlterReplicaLogDirTopicResult")
    rows = tuple(topic_part(topic_name=name, partitions=tuple(found)) for name, found in topics.items())
    answer(request, respond(KEY, results=rows))
