"""Pure: parse and check the options of a read or write, and return them as settings (`kraft.client.spark.settings`).

The module `table` lists all options; docs/spark-options.md is generated from that list. May import
kraft.client.spark.tables and settings, and the pure parts of kraft.client.core; never pyspark or trio.
"""

from kraft.client.spark.options.connection import parse_connection
from kraft.client.spark.options.given import OptionError
from kraft.client.spark.options.reading import parse_read, without_effect
from kraft.client.spark.options.schemas import check_schema, declared_schema
from kraft.client.spark.options.table import OPTIONS, Kind, Option
from kraft.client.spark.options.writing import parse_write, without_effect_on_sink

__all__ = [
    "OPTIONS",
    "Kind",
    "Option",
    "OptionError",
    "check_schema",
    "declared_schema",
    "parse_connection",
    "parse_read",
    "parse_write",
    "without_effect",
    "without_effect_on_sink",
]
