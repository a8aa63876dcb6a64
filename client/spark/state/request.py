"""Pure: what is read of which table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from kraft.client.spark.settings import TableSettings
from kraft.client.spark.tables import AS_OF, Source, Table, table_of

Getter = Callable[[Any], Any]
"""The value of one column, of what a row is made of."""

AS_OF_NAMES = tuple(column.name for column in AS_OF)


class StateError(Exception):
    """A table cannot be read; the text names the table, says why, and what to do."""


class Limits(Protocol):
    """What filters say of columns (`kraft.client.spark.predicates.Bounds`)."""

    def values(self, column: str) -> frozenset[Any] | None:
        """The only values that rows may have; None: any."""


@dataclass(frozen=True, slots=True)
class StateRequest:
    """Columns of a table, in the order of the rows. `bounds` limits what is asked for: rows that it does not admit may
    be left out."""

    table: str
    columns: tuple[str, ...]
    bounds: Limits
    settings: TableSettings

    @property
    def definition(self) -> Table:
        """TableError if there is no such table."""
        return table_of(self.table)

    @property
    def log_columns(self) -> tuple[str, ...]:
        """Those of the columns that only pykraft's metadata log has."""
        found = self.definition
        return tuple(name for name in self.columns if found.column(name).source is Source.LOG)


@dataclass(frozen=True, slots=True)
class Moment:
    """When, and at which offset of the metadata log, rows were made. `as_of`: an aware datetime."""

    as_of: Any
    as_of_offset: int | None


NO_VALUES: Mapping[str, Any] = MappingProxyType({})


def make_rows(
    request: StateRequest,
    getters: Mapping[str, Getter],
    sources: Iterable[Any],
    moment: Moment,
    log_getter: Callable[[str], Getter],
) -> Iterable[tuple[Any, ...]]:
    """A row for each source. `log_getter(column)` is the getter of a column of the metadata log."""
    ends = {"as_of_offset": moment.as_of_offset, "as_of": moment.as_of}
    from_log = frozenset(request.log_columns)
    chosen: list[Getter] = []
    for name in request.columns:
        if name in ends:
            chosen.append(_constant(ends[name]))
        else:
            chosen.append(log_getter(name) if name in from_log else getters[name])
    return (tuple([get(source) for get in chosen]) for source in sources)


def _constant(value: Any) -> Getter:
    return lambda _source: value
