"""Transactions: list, describe, fence, and write the markers that end hanging ones.

Requests about a transactional id go to its coordinator, and markers to the leader of a partition.
Source: KIP-360, KIP-664, KIP-994, KIP-1152, KIP-1228, Kafka's KafkaAdminClient.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from kraft.client.admin.routing import COORDINATOR_MOVES, Router, require_success
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, VersionMismatch
from kraft.client.core.batch import ProducerIdentity
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import duration, milliseconds


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id with its transaction. While no transaction is open, `started_ms` is None and `partitions` is
    empty."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AbortMarker:
    """The marker that aborts the open transaction of one producer in one partition. `coordinator_epoch` is the one that
    the partition's leader reports for the producer (`ProducerState.coordinator_epoch`)."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None = None


Found = dict[str, TransactionDescription]
OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
ANY_DURATION = -1
FENCED_TIMEOUT_MS = 60_000
"""Default transaction timeout of Kafka's producers."""
FIRST_WITH_DURATION, FIRST_WITH_PATTERN = 1, 2
"""First versions of ListTransactions that have these filters."""


class Transactions:
    """List, describe, fence and abort transactions."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def list(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        id_pattern: str | None = None,
        brokers: Iterable[int] | None = None,
    ) -> tuple[TransactionListing, ...]:
        """Return the transactional ids of these brokers (None: of all brokers), by name. Each filter that is given
        leaves out other ids: the transaction's state, the producer id, the time for which a transaction has been open,
        and a regular expression (RE2) that the whole id must match. Raise VersionMismatch if a broker does not support
        one of the last two. A broker counts the duration from the start of the last transaction even if that
        transaction is complete, so ids without an open transaction are left out here."""
        answers = await self._router.ask_each(
            ApiKey.LIST_TRANSACTIONS,
            lambda told: told.error_code,
            brokers,
            version_min=FIRST_WITH_PATTERN if id_pattern else 0 if longer_than_ms is None else FIRST_WITH_DURATION,
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=ANY_DURATION if longer_than_ms is None else longer_than_ms,
            transactional_id_pattern=id_pattern or None,
        )
        found: list[TransactionListing] = []
        for broker, answer in answers.items():
            require_success(answer, f"the transactions of broker {broker}")
            found += [
                TransactionListing(
                    str(told.transactional_id), int(told.producer_id), str(told.transaction_state), broker
                )
                for told in answer.transaction_states
                if longer_than_ms is None or told.transaction_state in OPEN_STATES
            ]
        return tuple(sorted(found, key=lambda one: one.transactional_id))

    async def describe(self, listed: Iterable[TransactionListing]) -> tuple[TransactionDescription, ...]:
        """Return the descriptions of these transactional ids, by name. An id that was deleted is left out. An id that
        moved to another coordinator meanwhile is described by that one."""
        by_coordinator: dict[int, list[str]] = {}
        for one in listed:
            by_coordinator.setdefault(one.coordinator, []).append(one.transactional_id)
        found: Found = {}
        await _each([partial(self._describe_at, broker, ids, found) for broker, ids in by_coordinator.items()])
        return tuple(found[name] for name in sorted(found))

    async def _describe_at(self, broker: int, ids: Sequence[str], found: Found) -> None:
        answer = await self._router.ask_node(
            broker, ApiKey.DESCRIBE_TRANSACTIONS, lambda told: ErrorCode.NONE, transactional_ids=ids
        )
        moved: list[str] = []
        for told in answer.transaction_states:
            if told.error_code in COORDINATOR_MOVES:
                moved.append(str(told.transactional_id))
            elif told.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                require_success(told, f"transactional id {told.transactional_id}")
                found[str(told.transactional_id)] = _read_transaction(broker, told)
        await _each([partial(self._describe_moved, name, found) for name in moved])

    async def _describe_moved(self, transactional_id: str, found: Found) -> None:
        try:
            found[transactional_id] = await self.describe_id(transactional_id)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise

    async def describe_id(self, transactional_id: str) -> TransactionDescription:
        """Return the description of one transactional id, from its coordinator. Raise KafkaError
        TRANSACTIONAL_ID_NOT_FOUND if no coordinator has this id."""
        broker, answer = await self._router.ask_transaction_coordinator(
            transactional_id,
            ApiKey.DESCRIBE_TRANSACTIONS,
            lambda told: told.transaction_states[0].error_code,
            transactional_ids=(transactional_id,),
        )
        told = answer.transaction_states[0]
        require_success(told, f"transactional id {transactional_id}")
        return _read_transaction(broker, told)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, transaction_timeout_ms: int = FENCED_TIMEOUT_MS
    ) -> dict[str, ProducerIdentity]:
        """Fence the producers of these transactional ids: abort their open transactions, and reject all that they send
        from now on. Return the identity after which each id continues. An id that does not exist yet is created. Until
        the next producer of an id sets its own, `transaction_timeout_ms` applies: at most the brokers'
        `transaction.max.timeout.ms`."""
        found: dict[str, ProducerIdentity] = {}
        names = dict.fromkeys(transactional_ids)
        await _each([partial(self._fence, name, transaction_timeout_ms, found) for name in names])
        return dict(sorted(found.items()))

    async def _fence(self, transactional_id: str, timeout_ms: int, found: dict[str, ProducerIdentity]) -> None:
        """CONCURRENT_TRANSACTIONS is transient: it is returned until the transaction is aborted."""
        _, answer = await self._router.ask_transaction_coordinator(
            transactional_id,
            ApiKey.INIT_PRODUCER_ID,
            lambda told: told.error_code,
            transactional_id=transactional_id,
            transaction_timeout=duration(timeout_ms),
            producer_id=-1,
            producer_epoch=-1,
        )
        require_success(answer, f"transactional id {transactional_id}")
        found[transactional_id] = ProducerIdentity(int(answer.producer_id), int(answer.producer_epoch))

    async def abort(self, marker: AbortMarker) -> None:
        """Have the leader of a partition write a marker that aborts a producer's open transaction there, without the
        transaction's coordinator. For hanging transactions only (see `kraft.client.admin.hanging`): the coordinator of
        any other one would still commit its records in other partitions. Returns once the marker is committed."""
        (topic, index), epoch = marker.partition, marker.coordinator_epoch
        row = {
            "producer_id": marker.producer_id,
            "producer_epoch": marker.producer_epoch,
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [index]}],
            # With no marker of this producer yet, no epoch was seen. 0 is not newer than that of any coordinator.
            "coordinator_epoch": 0 if epoch is None else epoch,
            "transaction_version": 0,  # it is not known; the leader then accepts the epoch of the transaction
        }

        async def ask(node_id: int, share: Mapping[TopicPartition, None]) -> dict[TopicPartition, tuple[int, None]]:
            answer = await self._router.ask_once(node_id, ApiKey.WRITE_TXN_MARKERS, markers=[row])
            return {
                (str(told.name), int(part.partition_index)): (int(part.error_code), None)
                for result in answer.markers
                for told in result.topics
                for part in told.partitions
            }

        await self._router.ask_leaders({marker.partition: None}, ask)


async def _each(calls: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Make all calls at the same time. If some have failed, raise the first error, not a group of errors."""
    failures: list[Exception] = []

    async def attempt(call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except (*CONNECTION_FAILURES, ClusterUnreachable, VersionMismatch, KafkaError) as failure:
            failures.append(failure)

    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(attempt, call)
    if failures:
        raise failures[0]


def _read_transaction(broker: int, told: Any) -> TransactionDescription:
    is_open = told.transaction_state in OPEN_STATES
    # Without an open transaction, Kafka still reports the start time of the last one
    started = int(told.transaction_start_time) if is_open else -1
    return TransactionDescription(
        str(told.transactional_id),
        broker,
        str(told.transaction_state),
        int(told.producer_id),
        int(told.producer_epoch),
        milliseconds(told.transaction_timeout),
        started if started >= 0 else None,
        tuple(sorted((str(topic.topic), int(index)) for topic in told.topics for index in topic.partitions)),
    )
