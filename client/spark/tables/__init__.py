"""Pure: definitions of all tables of the cluster's state: their columns, the source of each column's values, and the
APIs that brokers must support.

The schemas that Spark sees and docs/spark-tables.md are generated from these definitions. Invariants: column names are
unique within a table, and every table ends with the columns AS_OF. A table's `apis` names the Kafka messages from which
it is read. Source: KIP-966 (eligible leader replicas).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kraft.client.spark.tables import of_clients as clients
from kraft.client.spark.tables import of_cluster as cluster
from kraft.client.spark.tables.values import AS_OF, Column, ColumnSource, Table, TableError, nearest

__all__ = ["AS_OF", "TABLES", "Column", "ColumnSource", "Table", "TableError", "schema_ddl", "table_of"]

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
    """Return the definition of the table with this name. Raises TableError with the nearest name if the table is
    unknown."""
    if name not in TABLES:
        raise TableError(f"there is no table {name}{nearest(name, TABLES)}; there are: {', '.join(TABLES)}")
    return TABLES[name]


def schema_ddl(table: str, columns: Iterable[str] | None = None) -> str:
    """Return the schema of these columns, in this order, in Spark's DDL (None: all columns). Raises TableError for an
    unknown table or column, or a column that is named twice."""
    found = table_of(table)
    names = found.column_names if columns is None else tuple(columns)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TableError(f"column {twice} of table {table} is named twice")
    return ", ".join(f"`{name}` {found.column(name).type}" for name in names)
