"""Pure: the classes that define tables and columns, and the columns that several tables share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from kraft.wire.api_keys import ApiKey


class TableError(ValueError):
    """A table or column is unknown; the message names the nearest known name."""


class ColumnSource(Enum):
    """Source of a column's values: Kafka's protocol, which any cluster serves, or pykraft's metadata log. In a cluster
    that is not pykraft, columns of the metadata log are NULL."""

    PROTOCOL = "protocol"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Column:
    """Definition of a column. `type` is Spark's DDL; every column may be NULL. `is_live`: the column needs extra
    requests, which are sent only if it is read; in a past table the column is NULL."""

    name: str
    type: str
    meaning: str
    source: ColumnSource = ColumnSource.PROTOCOL
    is_live: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Definition of a table. `apis`: the requests that its rows need, each with the lowest usable version, without
    requests for live columns. `pushable`: columns on which filters limit what is requested from the brokers."""

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
        """Return the definition of the column with this name. Raises TableError with the nearest name if the column is
        unknown."""
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
    Column("as_of", "TIMESTAMP", "time of the response, or of the requested point of the log"),
)


def live(name: str, kind: str, meaning: str) -> Column:
    """Define a column that needs live requests."""
    return Column(name, kind, meaning, is_live=True)


def log(name: str, kind: str, meaning: str) -> Column:
    """Define a column whose values come from the metadata log."""
    return Column(name, kind, meaning, ColumnSource.LOG)


TOPIC = Column("topic", "STRING", "name of the topic")
TOPIC_ID = Column("topic_id", "STRING", "id of the topic, as Kafka's tools print it")
PARTITION = Column("partition", "INT", "index of the partition")
BROKER = Column("broker_id", "INT", "id of the broker")
GROUP = Column("group_id", "STRING", "id of the consumer group")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message that proposes the known name most similar to this one, or "" if none is
    similar."""
    close = get_close_matches(name.lower(), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
