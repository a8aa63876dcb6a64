"""Synchronous: one transaction of a sink's task, over blocking connections; the basis of exactly-once writes.

A task's transactional id is `<prefix>.<query id>.<Spark partition>`. So InitProducerId of an attempt aborts the
transaction that an earlier attempt of the same task left open, and fences that attempt. The task's progress is read
only after that, when no other attempt can change it. Records and progress are committed together.

This is the protocol before the second part of KIP-890 (transaction version 1): Produce up to 11, AddPartitionsToTxn by
the client, EndTxn up to 4. All brokers since Kafka 2.5 serve it, including those of transaction version 2. Version 2
raises the producer epoch at each EndTxn, so that a late batch cannot get into its producer's next transaction. Here
each transaction begins with an InitProducerId, which raises the epoch as well. If a batch is still in flight when its
transaction is aborted, the partition leader rejects it after a check with the coordinator (first part of KIP-890).
Brokers make that check since Kafka 3.6, so exactly-once writes need Kafka 3.6 or newer.
Source: KIP-98, KIP-360, KIP-890; Kafka's TransactionManager (4.x).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kraft.client.core.batch import ProducerIdentity
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.core.retriable import RETRIABLE
from kraft.client.spark.blocking.cluster import TRANSACTION, SyncCluster
from kraft.client.spark.blocking.link import VersionMismatch, build_request
from kraft.client.spark.blocking.retries import COORDINATOR_MOVES, classify
from kraft.client.spark.settings import ConnectionSettings, SinkSettings
from kraft.client.spark.sink.producer import SyncProducer
from kraft.client.spark.sink.progress import ProgressLog
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

_PASSING = RETRIABLE | COORDINATOR_MOVES
_FENCED = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class TransactionsMissing(Exception):
    """The cluster does not support transactions, so nothing can be written exactly once."""


class Fenced(KafkaError):
    """The producer is fenced: another attempt of the same task has begun, or the transaction was open for too long."""


class Transaction:
    """A transactional id, with the producer id that `begin` obtains by InitProducerId. Batches for enlisted partitions
    become visible to read_committed consumers after `commit`, and never after `abort`."""

    def __init__(self, cluster: SyncCluster, transactional_id: str, *, timeout_ms: int) -> None:
        """`timeout_ms`: time after which the broker aborts the open transaction."""
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._coordinator: int | None = None
        self._enlisted: set[TopicPartition] = set()
        self.transactional_id = transactional_id
        self.identity = ProducerIdentity()

    def begin(self) -> None:
        """Obtain a producer id and epoch. This aborts the transaction that an earlier producer of this transactional id
        left open, and fences that producer.

        Raises TransactionsMissing if the cluster does not support transactions; KafkaError if it denies the request;
        ClusterUnreachable."""
        self._require_transactions()
        answer = self._request(
            ApiKey.INIT_PRODUCER_ID,
            lambda reported: reported.error_code,
            transactional_id=self.transactional_id,
            transaction_timeout=messages.duration(self._timeout_ms),
        )
        self.identity = ProducerIdentity(int(answer.producer_id), int(answer.producer_epoch))
        self._enlisted = set()

    def enlist(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction before the first batch for them is sent. Raises Fenced, KafkaError,
        ClusterUnreachable."""
        added = set(partitions) - self._enlisted
        if not added:
            return
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(added):
            topics.setdefault(topic, []).append(index)
        self._request(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            _partitions_error,
            transactions=(
                {
                    "transactional_id": self.transactional_id,
                    "producer_id": self.identity.producer_id,
                    "producer_epoch": self.identity.producer_epoch,
                    "topics": tuple({"name": name, "partitions": tuple(parts)} for name, parts in topics.items()),
                },
            ),
        )
        self._enlisted |= added

    def commit(self) -> None:
        """Commit the transaction, which makes all of its batches visible.

        After Fenced, KafkaError or ClusterUnreachable it is unknown whether the transaction is committed. The next
        `begin` of this transactional id waits until that is decided."""
        self._end(committed=True)

    def abort(self) -> None:
        """Abort the transaction. Raises the same errors as `commit`."""
        self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        if not self._enlisted:
            return
        self._request(
            ApiKey.END_TXN,
            lambda reported: reported.error_code,
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            committed=committed,
        )
        self._enlisted = set()

    def _require_transactions(self) -> None:
        def attempt(wait_ms: float) -> None:
            if not self._cluster.brokers:
                self._cluster.refresh([], timeout_ms=wait_ms)
            self._cluster.link(min(self._cluster.brokers), timeout_ms=wait_ms).version(ApiKey.END_TXN)

        try:
            self._cluster.retry(attempt)
        except VersionMismatch as error:
            raise TransactionsMissing(
                "this cluster cannot write exactly once: its brokers do not serve InitProducerId with a transactional "
                "id (nor AddPartitionsToTxn and EndTxn). Leave out transactionalIdPrefix: then records are written at "
                "least once, and with markRecords=true a reader can drop those that came twice"
            ) from error

    def _request(self, key: ApiKey, error_of: Callable[[Any], Any], **fields: Any) -> Any:
        """Send a request to the coordinator. Retry while the coordinator moves, or still ends a transaction."""

        def attempt(wait_ms: float) -> Any:
            node_id, self._coordinator = self._coordinator, None
            # the coordinator is not looked up yet, or no longer in the metadata
            if node_id not in self._cluster.brokers:
                node_id = self._cluster.find_coordinator(self.transactional_id, kind=TRANSACTION, timeout_ms=wait_ms)
            answer = self._cluster.request(node_id, key, build_request(key, **fields), timeout_ms=wait_ms)
            code = ErrorCode.of(int(error_of(answer)))
            if is_fenced(code):
                raise self.fenced(code)
            if code is not ErrorCode.NONE:
                raise classify(code, _PASSING, f"{key.name} of transactional id {self.transactional_id}")
            self._coordinator = node_id
            return answer

        return self._cluster.retry(attempt)

    def fenced(self, code: ErrorCode) -> Fenced:
        """Return the Fenced exception for an error code for which `is_fenced` is true."""
        return Fenced(
            code,
            f"transactional id {self.transactional_id} has a newer producer: another attempt of this task has begun, "
            f"or the transaction was open for longer than kafka.transaction.timeout.ms={self._timeout_ms}",
        )


def is_fenced(code: ErrorCode) -> bool:
    """Whether this error code, from the coordinator or a leader, means that the producer is fenced."""
    return code in _FENCED


def _partitions_error(answer: Any) -> int:
    """Return the first error of an AddPartitionsToTxn response that names a cause; 0 if there is no error."""
    codes = [
        int(partition.partition_error_code)
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for partition in topic.results_by_partition
    ]
    wrong = [code for code in codes if code]
    causes = [code for code in wrong if code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return (causes or wrong or [0])[0]


def transactional_id(prefix: str, query_id: str, partition: int) -> str:
    """Return the transactional id of the task that writes this Spark partition."""
    return f"{prefix}.{query_id}.{partition}"


def delete_progress(connection: ConnectionSettings, query_id: str, *, progress_topic: str | None = None) -> int:
    """Delete the progress of a streaming query that will not run again. Return the number of Spark partitions that had
    progress.

    If the query is nevertheless restarted from its checkpoint, it may write its last batch twice. Raises KafkaError,
    ClusterUnreachable."""
    settings = SinkSettings(connection=connection)
    with SyncCluster(connection) as cluster:
        log = ProgressLog(cluster, progress_topic or settings.progress_topic)
        if not log.exists():
            return 0
        known = sorted(log.read(query_id))
        producer = SyncProducer(cluster, settings)
        for partition in known:
            producer.send(log.place_of(query_id), log.tombstone(query_id, partition))
        producer.finish()
    return len(known)
