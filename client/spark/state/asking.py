"""Async: a table's questions to the cluster, and what they have in common.

An answer that is missing is an error, except where a table says that its column or row is NULL without it: then
`or_none` waits for it no longer than a third of the time that the whole may take.
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
from kraft.client.spark.state.request import Getter, Limits, StateError
from kraft.client.spark.tables import Table
from kraft.seam import WireError
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from kraft.wire.reply_policy import api_name

Asked = TypeVar("Asked")
Found = TypeVar("Found")

REFUSED_MS = 5_000
"""How long addresses are tried that all refuse."""
AT_ONCE_MAX = 16
"""Questions about single groups that are under way at a time."""

NO_ANSWER = (*CONNECTION_FAILURES, ClusterUnreachable, VersionMismatch, KafkaError, WireError)
"""What a question may end with in place of an answer."""


@dataclass(frozen=True, slots=True)
class Asking:
    """An open admin client, and what is to be asked."""

    admin: Admin
    settings: TableSettings
    bounds: Limits
    columns: frozenset[str]
    versions: Mapping[int, tuple[int, int]]
    """The lowest and the highest version of each API, by its key, that a broker answers."""

    def reads(self, *columns: str) -> bool:
        """Whether any of these columns is read."""
        return not self.columns.isdisjoint(columns)

    def wanted(self, column: str) -> list[Any] | None:
        """The only values of this column that matter, in order; None: all."""
        values = self.bounds.values(column)
        return None if values is None else sorted(values)

    async def or_none(self, ask: Callable[[], Awaitable[Found]]) -> Found | None:
        """The answer; None if there is none within a third of the time."""
        with trio.move_on_after(self.part_seconds):
            try:
                return await ask()
            except NO_ANSWER:
                return None
        return None

    @property
    def part_seconds(self) -> float:
        """How long a part of the whole may take where the rest is of use without it."""
        assert self.settings.connection is not None
        return self.settings.connection.request_timeout_ms / ATTEMPTS_MIN / 1000

    async def each(
        self, kind: str, subjects: Iterable[Asked], ask: Callable[[Asked], Awaitable[Found]]
    ) -> dict[Asked, Found | Exception]:
        """Ask about each subject, a few at a time: what came of it, in the order of the subjects. `kind` names them in
        errors: "broker"."""
        outcomes: dict[Asked, Found | Exception] = {}
        limiter = trio.CapacityLimiter(AT_ONCE_MAX)
        listed = list(dict.fromkeys(subjects))

        async def ask_one(subject: Asked) -> None:
            async with limiter:
                try:
                    with trio.fail_after(self.part_seconds):
                        outcomes[subject] = await ask(subject)
                except trio.TooSlowError:
                    outcomes[subject] = TimeoutError(f"{kind} {subject} did not answer within {self.part_seconds:g} s")
                except NO_ANSWER as problem:
                    outcomes[subject] = problem

        async with trio.open_nursery() as nursery:
            for subject in listed:
                nursery.start_soon(ask_one, subject)
        return {subject: outcomes[subject] for subject in listed}

    def answers(self, key: ApiKey, version: int) -> bool:
        """Whether the brokers answer this version of a request, or a newer one."""
        return key in self.versions and self.versions[key][1] >= version

    def require(self, table: Table) -> None:
        """StateError if the brokers do not answer a request that the table needs."""
        for key, least in table.apis:
            if not self.answers(key, least):
                raise StateError(_lacking(table.name, key, least, self.versions.get(key)))

    async def live_brokers(self) -> list[int]:
        """The brokers that are registered and not fenced, as far as the bounds of `broker_id` go."""
        wanted = self.bounds.values("broker_id")
        cluster = await self.admin.nodes.cluster()
        return [
            one.node_id for one in cluster.brokers if not one.is_fenced and (wanted is None or one.node_id in wanted)
        ]


@dataclass(frozen=True, slots=True)
class Family:
    """How a table is made: a getter for each column that does not come from the metadata log, and `ask`, which gives
    what each row is made of. `key`: of such a thing, by which the log's values are found."""

    getters: Mapping[str, Getter]
    ask: Callable[[Asking], Awaitable[Iterable[Any]]]
    key: Callable[[Any], tuple[Any, ...]] = lambda _source: ()


def require_answers(outcomes: Mapping[Asked, Found | Exception]) -> dict[Asked, Found]:
    """All answers; the first failure is raised."""
    found: dict[Asked, Found] = {}
    for subject, outcome in outcomes.items():
        if isinstance(outcome, Exception):
            raise outcome
        found[subject] = outcome
    return found


def open_admin(connection: ConnectionSettings) -> Admin:
    """An admin client for this connection, not yet opened."""
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
