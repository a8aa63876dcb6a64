"""What a coordinator remembers of a group besides its records. Losing it costs only work that is done again.

Source: KIP-848, Kafka's ConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kraft.broker.consumer_group.regular_expressions import Expression
    from kraft.broker.consumer_group.topics import TopicsView, TopicView


INSTRUCTIONS_PER_NAME = 200
"""Instructions of an expression that count as much as one more name. Usual expressions execute almost none."""


class RegexResolution:
    """The search for the topics that match one expression, which may take several steps. `is_over`: all topics were
    examined."""

    __slots__ = ("_names", "expression", "found", "is_over")

    def __init__(self, expression: Expression, topics: TopicsView) -> None:
        self.expression = expression
        self.found: list[str] = []
        self.is_over = False
        self._names: Iterator[TopicView] = iter(topics)

    def advance(self, names_max: int) -> int:
        """Examine up to this many topics, or fewer if the expression takes many instructions. Return the work done,
        in names."""
        done, start = 0, self.expression.steps
        while done < names_max:
            topic = next(self._names, None)
            if topic is None:
                self.is_over = True
                break
            if self.expression.matches(topic.name):
                self.found.append(topic.name)
            executed = self.expression.steps - start
            done += 1 + executed // INSTRUCTIONS_PER_NAME
            start += executed
        return done


class CheckedTopics(NamedTuple):
    """The topics for which the hash of a group was computed last, and that hash."""

    topics: TopicsView
    metadata_hash: int


class GroupMemory:
    """What a coordinator remembers of one group. `resolutions` has the unfinished searches by expression.
    `refreshed_ms` is when the resolved expressions were last examined again, and `refreshed` the topics of that
    time."""

    __slots__ = ("checked", "refreshed", "refreshed_ms", "resolutions")

    def __init__(self) -> None:
        self.checked: CheckedTopics | None = None
        self.resolutions: dict[str, RegexResolution] = {}
        self.refreshed: TopicsView | None = None
        self.refreshed_ms: int | None = None
