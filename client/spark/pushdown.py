"""Readers that take filters where the session pushes them down, and work all the same where it does not.

Spark 4.2 refuses a reader that overrides `pushFilters` unless spark.sql.python.filterPushdown.enabled is true. It looks
at the `__func__` of the attribute, so the attribute here is an object that has the base method's. With the conf off it
is never called; with the conf on it is.
Source: pyspark.sql.worker.plan_data_source_read, pyspark.sql.worker.data_source_pushdown_filters (Spark 4.2).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable

from pyspark.sql.datasource import DataSourceReader, Filter


class _Pushed:
    """Calls `take`, and looks like the method that a reader without pushdown inherits."""

    def __init__(self, take: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._take = take
        self.__func__ = DataSourceReader.pushFilters  # of the object: a class's function would become a method

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._take(filters)


class PushdownReader(DataSourceReader):
    """Base of readers with `take_filters`."""

    @property
    def pushFilters(self) -> _Pushed:
        """What Spark calls with the filters of a query, if the session pushes filters down."""
        return _Pushed(self.take_filters)

    @abstractmethod
    def take_filters(self, filters: list[Filter]) -> list[Filter]:
        """Remember what narrows the read. Gives back, as the same objects, the filters that Spark must evaluate."""
