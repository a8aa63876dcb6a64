"""What a coordinator remembers of a group besides its records. Losing it costs only work that is done again.

Source: KIP-848, Kafka's ConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kraft.broker.consumer_group.regular_expressions import Expression
    from kraft.broker.consumer_group.topics import Topic, Topics


class Resolution:
    """The search for the topics that match one expression, which may take several steps."""

    __slots__ = ("_names", "expression", "found")

    def __init__(self, expression: Expression, topics: Topics) -> None:
        self.expression = expression
        self.found: list[str] = []
        self._names: Iterator[Topic] = iter(topics)

    def advance(self, names_max: int) -> int:
        """Examine up to this many topics, and return how many there were. If there were fewer, the search is over."""
        for count in range(names_max):
            topic = next(self._names, None)
            if topic is None:
                return count
            if self.expression.matches(topic.name):
                self.found.append(topic.name)
        return names_max


class CheckedTopics(NamedTuple):
    """The topics for which the hash of a group was computed last, and that hash."""

    topics: Topics
    metadata_hash: int


class GroupMemory:
    """What a coordinator remembers of one group. `resolutions` has the unfinished searches by expression.
    `refreshed_ms` is when the resolved expressions were last examined again, and `refreshed` the topics of that
    time."""

    __slots__ = ("checked", "refreshed", "refreshed_ms", "resolutions")

    def __init__(self) -> None:
        self.checked: CheckedTopics | None = None
        self.resolutions: dict[str, Resolution] = {}
        self.refreshed: Topics | None = None
        self.refreshed_ms: int | None = None
