"""Async: the tables `quotas`, `acls`, `scram_users` and `transactions`."""

from __future__ import annotations

import time
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from kraft.client.admin import Acl, AclResource, Quota, ScramUser, TransactionDescription
from kraft.client.spark.state.cells import partition_structs, time_of
from kraft.client.spark.state.request import Getter
from kraft.client.spark.state.table_query import Family, TableQuery

DEFAULT = "<default>"
"""Name that stands for the user, client id or IP address in a default quota. A default quota applies to all users,
client ids or addresses that have no quota themselves."""


async def request_quotas(query: TableQuery) -> tuple[Quota, ...]:
    return await query.admin.access.quotas()


def _entity(kind: str) -> Getter:
    """Return the getter of one part of a quota's entity, such as the user; its value is NULL if the entity lacks that
    part."""
    return lambda quota: (quota.entity[kind] or DEFAULT) if kind in quota.entity else None


async def request_acls(query: TableQuery) -> list[Acl]:
    """Return the ACLs. Brokers can filter by one resource type and one name; if filters allow several, they are
    filtered here."""
    types, names = query.bounds.values("resource_type"), query.bounds.values("resource")
    kind, name = AclResource.ANY, None
    if types is not None and len(types) == 1:
        kind = AclResource.__members__.get(next(iter(types)), AclResource.ANY)
    if names is not None and len(names) == 1:
        name = next(iter(names))
    found = await query.admin.access.acls(kind, name)
    return [
        acl
        for acl in found
        if (types is None or acl.resource_type in types) and (names is None or acl.resource in names)
    ]


async def request_scram_users(query: TableQuery) -> tuple[ScramUser, ...]:
    wanted = query.wanted("user")
    return () if wanted == [] else await query.admin.access.scram_users(wanted)


class TransactionRow(NamedTuple):
    """A transactional id; `asked_ms` is the time of the request."""

    transaction: TransactionDescription
    asked_ms: int

    @property
    def age_ms(self) -> int | None:
        started_ms = self.transaction.started_ms
        return None if started_ms is None else max(self.asked_ms - started_ms, 0)


async def request_transactions(query: TableQuery) -> list[TransactionRow]:
    ids = query.bounds.values("transactional_id")
    producer_ids = query.wanted("producer_id")
    if producer_ids == []:
        return []
    transactions = query.admin.transactions
    listed = await transactions.list(producer_ids=producer_ids or (), brokers=await query.live_brokers())
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
            request_quotas,
        ),
        "acls": Family({name: attrgetter(name) for name in Acl.__dataclass_fields__}, request_acls),
        "scram_users": Family({name: attrgetter(name) for name in ScramUser.__dataclass_fields__}, request_scram_users),
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
            request_transactions,
        ),
    }
)
