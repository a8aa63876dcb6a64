"""Synchronous: one transaction of a sink's task, over blocking links, and the writes that are exactly once by it.

A task's transactional id is `<prefix>.<query id>.<Spark partition>`, so InitProducerId of an attempt ends what an
earlier attempt of the same task left open, and fences it. Only then the progress of the task is read, so that it cannot
change any more behind the reader's back. Records and progress are committed together.

This is the protocol of before KIP-890's second part (transaction version 1): Produce up to 11, AddPartitionsToTxn by
the client, EndTxn up to 4. All brokers since Kafka 2.5 serve it, those of transaction version 2 included. Version 2
raises the producer epoch at each EndTxn, so that a late batch cannot get into the next transaction of its producer;
here every transaction begins with an InitProducerId, which raises it as well. A batch that is still under way when its
transaction is aborted is kept out by the partition leader's check with the coordinator (KIP-890's first part), which
brokers have since Kafka 3.6: exactly once needs these.
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
    """The cluster has no transactions, so nothing can be written exactly once."""


class Fenced(KafkaError):
    """Another attempt of the same task has begun, or the transaction was open for too long."""


class Transaction:
    """A transactional id with the producer id that InitProducerId gave it; `begin` does it. What an `enlist` adds is
    visible to readers of committed records after `commit`, and never after `abort`."""

    def __init__(self, cluster: SyncCluster, transactional_id: str, *, timeout_ms: int) -> None:
        """`timeout_ms`: the broker aborts the transaction when it has been open for so long."""
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._coordinator: int | None = None
        self._enlisted: set[TopicPartition] = set()
        self.transactional_id = transactional_id
        self.identity = ProducerIdentity()

    def begin(self) -> None:
        """Abort what an earlier producer of this id left open, fence it, and get an identity.

        TransactionsMissing if the cluster has none; KafkaError if it refuses; ClusterUnreachable."""
        self._require_transactions()
        answer = self._ask(
            ApiKey.INIT_PRODUCER_ID,
            lambda told: told.error_code,
            transactional_id=self.transactional_id,
            transaction_timeout=messages.duration(self._timeout_ms),
        )
        self.identity = ProducerIdentity(int(answer.producer_id), int(answer.producer_epoch))
        self._enlisted = set()

    def enlist(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions before the first batch for them leaves. Fenced, KafkaError, ClusterUnreachable."""
        added = set(partitions) - self._enlisted
        if not added:
            return
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(added):
            topics.setdefault(topic, []).append(index)
        self._ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            _partitions_error,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.producer_epoch,
            v3_and_below_topics=tuple({"name": name, "partitions": tuple(parts)} for name, parts in topics.items()),
        )
        self._enlisted |= added

    def commit(self) -> None:
        """Make all of it visible. Fenced, KafkaError or ClusterUnreachable: whether it is committed is open then; the
        next `begin` of this id waits until that is settled."""
        self._end(committed=True)

    def abort(self) -> None:
        """Undo all of it. Errors as `commit`."""
        self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        if not self._enlisted:
            return
        self._ask(
            ApiKey.END_TXN,
            lambda told: told.error_code,
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

    def _ask(self, key: ApiKey, error_of: Callable[[Any], Any], **fields: Any) -> Any:
        """Ask the coordinator until it neither moves nor is busy with the end of a transaction."""

        def attempt(wait_ms: float) -> Any:
            node_id, self._coordinator = self._coordinator, None
            if node_id not in self._cluster.brokers:  # not known yet, or gone since
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
        """What to raise for a code that `is_fenced`."""
        return Fenced(
            code,
            f"transactional id {self.transactional_id} has a newer producer: another attempt of this task has begun, "
            f"or the transaction was open for longer than kafka.transaction.timeout.ms={self._timeout_ms}",
        )


def is_fenced(code: ErrorCode) -> bool:
    """Whether this error of the coordinator or of a leader says that the producer's epoch is over."""
    return code in _FENCED


def _partitions_error(answer: Any) -> int:
    """The first error of an AddPartitionsToTxn answer that says why; 0 if there is none."""
    codes = [
        int(partition.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]
    wrong = [code for code in codes if code]
    causes = [code for code in wrong if code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return (causes or wrong or [0])[0]


def transactional_id(prefix: str, query_id: str, partition: int) -> str:
    """Of the task that writes this Spark partition."""
    return f"{prefix}.{query_id}.{partition}"


def forget(connection: ConnectionSettings, query_id: str, *, progress_topic: str | None = None) -> int:
    """Delete the progress of a streaming query that will not run again; gives how many Spark partitions had some.

    A query that is started again from its checkpoint after this may write its last batch twice. KafkaError,
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
