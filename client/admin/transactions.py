"""Transactions: list and describe them. Source: KIP-664."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import trio

from kraft.client.admin.routing import Router, require_success
from kraft.client.core.records import TopicPartition
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import milliseconds


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


Found = list[TransactionDescription]
OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


class Transactions:
    """List and describe transactions. The requests go to the coordinators of the transactions."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def list(
        self, *, producer_ids: Iterable[int] = (), brokers: Iterable[int] | None = None
    ) -> tuple[TransactionListing, ...]:
        """Return all transactional ids of these brokers (None: of all brokers), by name. If producer ids are given,
        return only theirs."""
        answers = await self._router.ask_each(
            ApiKey.LIST_TRANSACTIONS,
            lambda told: told.error_code,
            brokers,
            producer_id_filters=list(producer_ids),
            duration_filter=-1,
            transactional_id_pattern=None,
        )
        found: list[TransactionListing] = []
        for broker, answer in answers.items():
            require_success(answer, f"the transactions of broker {broker}")
            found += [
                TransactionListing(
                    str(told.transactional_id), int(told.producer_id), str(told.transaction_state), broker
                )
                for told in answer.transaction_states
            ]
        return tuple(sorted(found, key=lambda one: one.transactional_id))

    async def describe(self, listed: Iterable[TransactionListing]) -> tuple[TransactionDescription, ...]:
        """Return the descriptions of these transactional ids, by name. An id that was deleted, or that moved to another
        coordinator during the call, is left out."""
        by_coordinator: dict[int, list[str]] = {}
        for one in listed:
            by_coordinator.setdefault(one.coordinator, []).append(one.transactional_id)
        found: Found = []
        async with trio.open_nursery() as nursery:
            for broker, ids in by_coordinator.items():
                nursery.start_soon(self._describe_at, broker, ids, found)
        return tuple(sorted(found, key=lambda one: one.transactional_id))

    async def _describe_at(self, broker: int, ids: Sequence[str], found: Found) -> None:
        answer = await self._router.ask_node(
            broker, ApiKey.DESCRIBE_TRANSACTIONS, lambda told: ErrorCode.NONE, transactional_ids=ids
        )
        for told in answer.transaction_states:
            if told.error_code in _GONE:
                continue
            require_success(told, f"transactional id {told.transactional_id}")
            found.append(_read_transaction(broker, told))


_GONE = frozenset({ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR})


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
