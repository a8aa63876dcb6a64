"""Async: the requests for a table, and what all tables share.

A missing response is an error, unless the table defines that the column or row is NULL then. In that case `or_none`
waits for at most a third of the table's timeout.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import trio

from kraft.client.admin import Admin
from kraft.client.admin.routing import ATTEMPTS_MIN
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, VersionMismatch
from kraft.client.core.records import KafkaError
from kraft.client.spark.blocking.link import tls_settings
from kraft.client.spark.settings import ConnectionSettings, TableSettings
from kraft.client.spark.state.request import ColumnLimits, Getter, StateError
from kraft.client.spark.tables import Table
from kraft.seam import WireError
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from kraft.wire.reply_policy import api_name

Subject = TypeVar("Subject")
Found = TypeVar("Found")

REFUSED_MS = 5_000
"""Milliseconds for which addresses are retried while all of them refuse the connection."""
AT_ONCE_MAX = 16
"""Maximum concurrent requests that each concern a single group."""

REQUEST_FAILURES = (*CONNECTION_FAILURES, ClusterUnreachable, VersionMismatch, KafkaError, WireError)
"""Exceptions that mean a request got no usable response."""


@dataclass(frozen=True, slots=True)
class TableQuery:
    """A query of one table: an open admin client, and the columns and rows to request with it."""

    admin: Admin
    settings: TableSettings
    bounds: ColumnLimits
    columns: frozenset[str]
    versions: Mapping[int, tuple[int, int]]
    """API key → the lowest and highest version that a broker supports."""

    def reads(self, *columns: str) -> bool:
        """Whether the query reads any of these columns."""
        return not self.columns.isdisjoint(columns)

    def wanted(self, column: str) -> list[Any] | None:
        """Return the only values of this column that the filters admit, sorted; None: all values."""
        values = self.bounds.values(column)
        return None if values is None else sorted(values)

    async def or_none(self, send: Callable[[], Awaitable[Found]]) -> Found | None:
        """Return the response to a request, or None if none arrives within a third of the timeout."""
        with trio.move_on_after(self.part_seconds):
            try:
                return await send()
            except REQUEST_FAILURES:
                return None
        return None

    @property
    def part_seconds(self) -> float:
        """Seconds to wait for a part of the table without which the other columns are still useful."""
        assert self.settings.connection is not None
        return self.settings.connection.request_timeout_ms / ATTEMPTS_MIN / 1000

    async def each(
        self, kind: str, subjects: Iterable[Subject], send: Callable[[Subject], Awaitable[Found]]
    ) -> dict[Subject, Found | Exception]:
        """Send a request about each subject, a few at a time. Return the result or error of each, in the order of the
        subjects. `kind` names the subjects in errors, for example "broker"."""
        outcomes: dict[Subject, Found | Exception] = {}
        limiter = trio.CapacityLimiter(AT_ONCE_MAX)
        listed = list(dict.fromkeys(subjects))

        async def send_one(subject: Subject) -> None:
            async with limiter:
                try:
                    with trio.fail_after(self.part_seconds):
                        outcomes[subject] = await send(subject)
                except trio.TooSlowError:
                    outcomes[subject] = TimeoutError(f"{kind} {subject} did not answer within {self.part_seconds:g} s")
                except REQUEST_FAILURES as problem:
                    outcomes[subject] = problem

        async with trio.open_nursery() as nursery:
            for subject in listed:
                nursery.start_soon(send_one, subject)
        return {subject: outcomes[subject] for subject in listed}

    def answers(self, key: ApiKey, version: int) -> bool:
        """Whether the brokers support this version of a request, or a newer one."""
        return key in self.versions and self.versions[key][1] >= version

    def require(self, table: Table) -> None:
        """Raise StateError if the brokers do not support a request that the table needs."""
        for key, least in table.apis:
            if not self.answers(key, least):
                raise StateError(_lacking(table.name, key, least, self.versions.get(key)))

    async def live_brokers(self) -> list[int]:
        """Return the registered brokers that are not fenced and within the bounds of `broker_id`."""
        wanted = self.bounds.values("broker_id")
        cluster = await self.admin.nodes.cluster()
        return [
            one.node_id for one in cluster.brokers if not one.is_fenced and (wanted is None or one.node_id in wanted)
        ]


@dataclass(frozen=True, slots=True)
class Family:
    """Definition of how to make a table's rows. `request_sources` returns the object that each row is made of.
    `getters` has, for each column that is not from the metadata log, a function on that object. `key` returns the
    object's key for values from the metadata log."""

    getters: Mapping[str, Getter]
    request_sources: Callable[[TableQuery], Awaitable[Iterable[Any]]]
    key: Callable[[Any], tuple[Any, ...]] = lambda _source: ()


def require_answers(outcomes: Mapping[Subject, Found | Exception]) -> dict[Subject, Found]:
    """Return all responses, or raise the first failure among them."""
    found: dict[Subject, Found] = {}
    for subject, outcome in outcomes.items():
        if isinstance(outcome, Exception):
            raise outcome
        found[subject] = outcome
    return found


def open_admin(connection: ConnectionSettings) -> Admin:
    """Return an unopened admin client with these connection settings."""
    return Admin(
        bootstrap_servers=connection.bootstrap_servers,
        client_id=connection.client_id,
        timeout_ms=connection.request_timeout_ms,
        refused_ms=min(REFUSED_MS, connection.request_timeout_ms),
        tls=tls_settings(connection.tls),
    )


def _lacking(table: str, key: ApiKey, least: int, known: tuple[int, int] | None) -> str:
    versions = "do not answer it" if known is None else f"answer only versions {known[0]} to {known[1]}"
    ours = "" if key in BROKER_APIS else "; brokers of pykraft do not serve it yet, those of Apache Kafka do"
    return f"table {table} needs {api_name(key)} version {least} or newer, and these brokers {versions}{ours}"
