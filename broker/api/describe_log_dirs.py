"""DescribeLogDirs: the log directories of this broker, the replicas in them, and their free space.

The size of a log is the size of its segments. A log that is not open is measured on the disk. A replica that is being
moved to another directory of this broker is reported there as a future replica. Its `offset_lag` is the number of
offsets that the copy lacks; for all other replicas it is 0. As in Kafka, the metadata log is not listed. No directory
is cordoned (KIP-1066): this broker ignores the config key for it.
Source: DescribeLogDirsRequest 1 to 5, KIP-113, KIP-827.
"""

from __future__ import annotations

from collections.abc import Iterable
from errno import ENOENT
from typing import TYPE_CHECKING, Any

from kraft.broker.serving.gates import Operation
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.seam import Disk, DiskError
from kraft.storage.log_names import LOG_SUFFIX
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext
    from kraft.broker.partition.log_directories import HostedDirectory

KEY = ApiKey.DESCRIBE_LOG_DIRS
TopicPartition = tuple[str, int]


def handle_describe_log_dirs(context: HandlerContext, request: Request, session: Session) -> None:
    """Describe every directory, with the requested partitions or with all of them. The client needs DESCRIBE on the
    cluster."""
    message = read(request)
    if not context.gates.authorize_cluster(session, Operation.DESCRIBE):
        answer(request, respond(KEY, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return
    wanted: set[TopicPartition] | None = None
    if message.topics is not None:
        wanted = {(topic.topic, index) for topic in message.topics for index in topic.partitions}

    async def reply() -> None:
        results = [await _directory(context, directory, wanted) for directory in context.directories.all]
        answer(request, respond(KEY, results=results))

    context.answer_later(request, reply)


async def _directory(context: HandlerContext, directory: HostedDirectory, wanted: set[TopicPartition] | None) -> Any:
    result = part(KEY, "DescribeLogDirsResult")
    offline = result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, total_bytes=-1, usable_bytes=-1)
    if not directory.is_online:
        return offline
    sizes: dict[TopicPartition, int] = {}
    closed: dict[TopicPartition, str] = {}
    for partition in directory.partitions:
        key = (partition.topic, partition.index)
        if wanted is not None and key not in wanted:
            continue
        if partition.log is not None:
            sizes[key] = partition.log.size_bytes
        elif partition.is_unwritten:
            sizes[key] = 0
        elif directory.storage is not None:
            closed[key] = directory.storage.partition_path(*key)
    try:
        measured = await context.loop.disk.offload(_measure, context.loop.disk, directory.path, closed)
    except DiskError as error:
        context.failures.disk_failed_at(error, directory)
        return offline
    found, total_bytes, usable_bytes = measured
    return result(
        log_dir=directory.path,
        topics=_topics({**sizes, **found}.items(), _futures(context, directory, wanted)),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


def _futures(
    context: HandlerContext, directory: HostedDirectory, wanted: set[TopicPartition] | None
) -> Iterable[tuple[TopicPartition, int, int]]:
    """Return (partition, bytes, missing offsets) of each copy that a move is making in the directory."""
    for move in context.moves.into(directory):
        key = (move.partition.topic, move.partition.index)
        if move.future is not None and (wanted is None or key in wanted):
            yield key, move.future.size_bytes, move.lag()


def _topics(
    sizes: Iterable[tuple[TopicPartition, int]], futures: Iterable[tuple[TopicPartition, int, int]]
) -> tuple[Any, ...]:
    topics: dict[str, list[Any]] = {}
    described = part(KEY, "DescribeLogDirsPartition")
    for (topic, index), size in sorted(sizes):
        topics.setdefault(topic, []).append(described(partition_index=index, partition_size=size))
    for (topic, index), size, lag in sorted(futures):
        row = described(partition_index=index, partition_size=size, offset_lag=lag, is_future_key=True)
        topics.setdefault(topic, []).append(row)
    topic_part = part(KEY, "DescribeLogDirsTopic")
    return tuple(topic_part(name=name, partitions=tuple(rows)) for name, rows in topics.items())


def _measure(
    disk: Disk, directory: str, closed: dict[TopicPartition, str]
) -> tuple[dict[TopicPartition, int], int, int]:
    """Return (sizes of logs that are not open, size of the file system, free space), in bytes. *Blocking.*"""
    sizes = {key: _log_bytes(disk, path) for key, path in closed.items() if disk.is_directory(path)}
    return sizes, disk.total_bytes(directory), disk.free_bytes(directory)


def _log_bytes(disk: Disk, path: str) -> int:
    """Return the size of the log's files in bytes. No lock is taken, so the log may be opened or deleted during the
    measurement. Missing files or a missing folder are therefore not a failure of the device."""
    total = 0
    try:
        for name in disk.list(path):
            if name.endswith(LOG_SUFFIX):
                file = disk.open(f"{path}/{name}")
                total += file.size
                file.close()
    except DiskError as error:
        if error.errno != ENOENT:
            raise
    return total
