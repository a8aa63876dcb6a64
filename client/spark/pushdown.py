"""Base class of readers that accept filters if the session pushes them down, and also work in sessions without
pushdown.

Spark 4.2 rejects a reader that overrides `pushFilters` unless spark.sql.python.filterPushdown.enabled is true. It
detects an override by the attribute's `__func__`. So `pushFilters` is an object here, whose `__func__` is the base
class's method. Spark calls the object only if the setting is on.
Source: pyspark.sql.worker.plan_data_source_read, pyspark.sql.worker.data_source_pushdown_filters (Spark 4.2).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable

from pyspark.sql.datasource import DataSourceReader, Filter


class _PushFilters:
    """Callable that calls `take`, and that Spark takes for the inherited method of a reader without pushdown."""

    def __init__(self, take: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._take = take
        # set on the object, because a function set on the class would become a method
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._take(filters)


class PushdownReader(DataSourceReader):
    """Base class of readers that implement `take_filters`."""

    @property
    def pushFilters(self) -> _PushFilters:
        """The callable to which Spark passes the filters of a query, if the session pushes filters down."""
        return _PushFilters(self.take_filters)

    @abstractmethod
    def take_filters(self, filters: list[Filter]) -> list[Filter]:
        """Store the filters that narrow the read. Return the filters that Spark must evaluate, as the same objects."""
