"""Async: the tables `quotas`, `acls`, `scram_users` and `transactions`."""

from __future__ import annotations

import time
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from kraft.client.admin import Acl, AclResource, Quota, ScramUser, TransactionDescription
from kraft.client.spark.state.asking import Asking, Family
from kraft.client.spark.state.cells import partition_structs, time_of
from kraft.client.spark.state.request import Getter

DEFAULT = "<default>"
"""Stands for all that have no quota of their own."""


async def ask_quotas(asking: Asking) -> tuple[Quota, ...]:
    return await asking.admin.access.quotas()


def _entity(kind: str) -> Getter:
    """The name of this part of what a quota is for; NULL if it is no part of it."""
    return lambda quota: (quota.entity[kind] or DEFAULT) if kind in quota.entity else None


async def ask_acls(asking: Asking) -> list[Acl]:
    """The brokers get one type and one name; more than one are chosen here."""
    types, names = asking.bounds.values("resource_type"), asking.bounds.values("resource")
    kind, name = AclResource.ANY, None
    if types is not None and len(types) == 1:
        kind = AclResource.__members__.get(next(iter(types)), AclResource.ANY)
    if names is not None and len(names) == 1:
        name = next(iter(names))
    found = await asking.admin.access.acls(kind, name)
    return [
        acl
        for acl in found
        if (types is None or acl.resource_type in types) and (names is None or acl.resource in names)
    ]


async def ask_scram_users(asking: Asking) -> tuple[ScramUser, ...]:
    wanted = asking.wanted("user")
    return () if wanted == [] else await asking.admin.access.scram_users(wanted)


class TransactionRow(NamedTuple):
    """A transactional id; `asked_ms` is when it was asked for."""

    transaction: TransactionDescription
    asked_ms: int

    @property
    def age_ms(self) -> int | None:
        started_ms = self.transaction.started_ms
        return None if started_ms is None else max(self.asked_ms - started_ms, 0)


async def ask_transactions(asking: Asking) -> list[TransactionRow]:
    ids = asking.bounds.values("transactional_id")
    producer_ids = asking.wanted("producer_id")
    if producer_ids == []:
        return []
    transactions = asking.admin.transactions
    listed = await transactions.list(producer_ids=producer_ids or (), brokers=await asking.live_brokers())
    described = await transactions.describe([one for one in listed if ids is None or one.transactional_id in ids])
    asked_ms = int(time.time() * 1000)
    return [TransactionRow(one, asked_ms) for one in described]


FAMILIES = MappingProxyType(
    {
        "quotas": Family(
            {
                "user": _entity("user"),
                "client_id": _entity("client-id"),
                "ip": _entity("ip"),
                "quota": attrgetter("name"),
                "value": attrgetter("value"),
            },
            ask_quotas,
        ),
        "acls": Family({name: attrgetter(name) for name in Acl.__dataclass_fields__}, ask_acls),
        "scram_users": Family({name: attrgetter(name) for name in ScramUser.__dataclass_fields__}, ask_scram_users),
        "transactions": Family(
            {
                "transactional_id": attrgetter("transaction.transactional_id"),
                "coordinator": attrgetter("transaction.coordinator"),
                "state": attrgetter("transaction.state"),
                "producer_id": attrgetter("transaction.producer_id"),
                "producer_epoch": attrgetter("transaction.producer_epoch"),
                "timeout_ms": attrgetter("transaction.timeout_ms"),
                "started": lambda row: time_of(row.transaction.started_ms),
                "age_ms": attrgetter("age_ms"),
                "partitions": lambda row: partition_structs(row.transaction.partitions),
            },
            ask_transactions,
        ),
    }
)
