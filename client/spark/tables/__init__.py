"""Pure: the one table of tables. What each table of the cluster's state holds, column by column, where the values come
from, and what the brokers must answer for it.

The schemas that Spark sees and docs/spark-tables.md are made from it. Invariants: names are unique within a table, and
every table ends with AS_OF.
Each table's `apis` names the Kafka messages that it is read from. Source: KIP-966 (eligible leader replicas).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kraft.client.spark.tables import of_clients as clients
from kraft.client.spark.tables import of_cluster as cluster
from kraft.client.spark.tables.values import AS_OF, Column, Source, Table, TableError, nearest

__all__ = ["AS_OF", "TABLES", "Column", "Source", "Table", "TableError", "schema_ddl", "table_of"]

TABLES: Mapping[str, Table] = MappingProxyType(
    {
        table.name: table
        for table in (
            cluster.BROKERS,
            cluster.CONTROLLERS,
            cluster.TOPICS,
            cluster.PARTITIONS,
            cluster.REPLICAS,
            cluster.CONFIGS,
            clients.GROUPS,
            clients.GROUP_MEMBERS,
            clients.GROUP_OFFSETS,
            clients.OFFSET_COMMITS,
            cluster.LOG_DIRS,
            cluster.FEATURES,
            cluster.APIS,
            cluster.QUOTAS,
            cluster.ACLS,
            cluster.SCRAM_USERS,
            clients.TRANSACTIONS,
            clients.PRODUCERS,
            cluster.METADATA_EVENTS,
            cluster.METADATA_DIFF,
            cluster.METRICS,
        )
    }
)


def table_of(name: str) -> Table:
    """The table of this name. TableError with the nearest name if there is none."""
    if name not in TABLES:
        raise TableError(f"there is no table {name}{nearest(name, TABLES)}; there are: {', '.join(TABLES)}")
    return TABLES[name]


def schema_ddl(table: str, columns: Iterable[str] | None = None) -> str:
    """The schema in Spark's DDL: these columns in this order, or all (None). TableError for a table or a column that
    is not there, or for a column that is named twice."""
    found = table_of(table)
    names = found.column_names if columns is None else tuple(columns)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TableError(f"column {twice} of table {table} is named twice")
    return ", ".join(f"`{name}` {found.column(name).type}" for name in names)
