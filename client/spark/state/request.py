"""Pure: a request for rows of a table: the table's name, the columns, and the bounds that filters set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from kraft.client.spark.settings import TableSettings
from kraft.client.spark.tables import ColumnSource, Table, table_of

Getter = Callable[[Any], Any]
"""Type: function from the object that a row is made of to the value of one column."""


class StateError(Exception):
    """A table cannot be read; the message names the table, the reason, and what to do."""


class ColumnLimits(Protocol):
    """Interface for the column values that filters admit; implemented by `kraft.client.spark.predicates.Bounds`."""

    def values(self, column: str) -> frozenset[Any] | None:
        """Return the only values that rows may have in this column; None: any value."""


@dataclass(frozen=True, slots=True)
class StateRequest:
    """Columns of a table, in the order in which rows have them. `bounds` limits the requests to brokers: rows outside
    of the bounds may be left out."""

    table: str
    columns: tuple[str, ...]
    bounds: ColumnLimits
    settings: TableSettings

    @property
    def definition(self) -> Table:
        """The definition of the requested table. Raises TableError if there is no such table."""
        return table_of(self.table)

    @property
    def log_columns(self) -> tuple[str, ...]:
        """Requested columns whose values are only in pykraft's metadata log."""
        found = self.definition
        return tuple(name for name in self.columns if found.column(name).source is ColumnSource.LOG)


@dataclass(frozen=True, slots=True)
class Moment:
    """The time at which rows were made, an aware datetime, and the offset that the metadata log had then."""

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
    """Return a row for each of these objects. `log_getter(column)` returns the getter of a metadata-log column."""
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
