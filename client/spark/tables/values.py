"""Pure: tables and columns as values, and the columns that several tables share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from kraft.wire.api_keys import ApiKey


class TableError(ValueError):
    """An unknown table or column; the text names the nearest one."""


class Source(Enum):
    """Where a column's values come from: Kafka's protocol, from any cluster; or pykraft's metadata log, and then the
    column is NULL for any other cluster."""

    PROTOCOL = "protocol"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `type` is Spark's DDL; every column may be NULL. `is_live`: it costs requests of its own, which are
    made only if the column is read, and it is NULL in a table of the past."""

    name: str
    type: str
    meaning: str
    source: Source = Source.PROTOCOL
    is_live: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `apis`: the requests that its rows need, each with the least version; those of live columns are not
    among them. `pushable`: the columns whose filters limit what the brokers are asked for."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    apis: tuple[tuple[ApiKey, int], ...]
    pushable: tuple[str, ...] = ()
    has_time_travel: bool = False
    is_streamable: bool = False

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """TableError with the nearest name if there is none of this name."""
        found = next((column for column in self.columns if column.name == name), None)
        if found is None:
            raise TableError(f"table {self.name} has no column {name}{nearest(name, self.column_names)}")
        return found


INT_LIST = "ARRAY<INT>"
STRING_LIST = "ARRAY<STRING>"
ENDPOINT_LIST = "ARRAY<STRUCT<name: STRING, host: STRING, port: INT, security_protocol: STRING>>"
PARTITION_LIST = "ARRAY<STRUCT<topic: STRING, partition: INT>>"
SYNONYM_LIST = "ARRAY<STRUCT<name: STRING, value: STRING, source: STRING>>"

AS_OF = (
    Column("as_of_offset", "BIGINT", "offset of the metadata log that the row was made from; NULL if it was not"),
    Column("as_of", "TIMESTAMP", "time of the answer, or of the point in the log that was asked for"),
)


def live(name: str, kind: str, meaning: str) -> Column:
    """A live column."""
    return Column(name, kind, meaning, is_live=True)


def log(name: str, kind: str, meaning: str) -> Column:
    """A column of the metadata log."""
    return Column(name, kind, meaning, Source.LOG)


TOPIC = Column("topic", "STRING", "name of the topic")
TOPIC_ID = Column("topic_id", "STRING", "id of the topic, as Kafka's tools print it")
PARTITION = Column("partition", "INT", "index of the partition")
BROKER = Column("broker_id", "INT", "id of the broker")
GROUP = Column("group_id", "STRING", "id of the consumer group")


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error's text: the known name that is most like this one, if any is."""
    close = get_close_matches(name.lower(), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
