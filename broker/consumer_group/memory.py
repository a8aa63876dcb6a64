"""What a coordinator remembers of a group besides its records. Losing it costs only work that is done again.

Source: KIP-848, Kafka's ConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kraft.broker.regular_expressions import Match

if TYPE_CHECKING:
    from kraft.broker.consumer_group.topics import TopicsView, TopicView
    from kraft.broker.regular_expressions import Expression


INSTRUCTIONS_PER_NAME = 10
"""Instructions of an expression that count as much as one more name. Usual expressions execute few, so that the first
reply to a new one has its topics. With 1,000 names per step, a step takes 20 ms at most."""


class TopicSearch(NamedTuple):
    """Where to search for topics: all topics, and whether the client may describe one."""

    topics: TopicsView
    may_describe: Callable[[str], bool]


class RegexResolution:
    """The search for the topics that match one expression, which may take several steps. `is_over`: all topics were
    examined."""

    __slots__ = ("_match", "_may_describe", "_names", "expression", "found", "is_over")

    def __init__(self, expression: Expression, search: TopicSearch) -> None:
        self.expression = expression
        self.found: list[str] = []
        self.is_over = False
        self._names: Iterator[TopicView] = iter(search.topics)
        self._may_describe = search.may_describe
        self._match: Match | None = None

    def advance(self, work_max: int) -> int:
        """Examine topics until all are examined or this much work is done. Return the work: one for each topic, and one
        for every INSTRUCTIONS_PER_NAME instructions that the expression has executed."""
        work = 0
        while work < work_max:
            if self._match is None:
                topic = next(self._names, None)
                if topic is None:
                    self.is_over = True
                    break
                self._match = Match(self.expression, topic.name)
                work += 1
            work += self._continue_match(self._match, (work_max - work) * INSTRUCTIONS_PER_NAME)
        return work

    def _continue_match(self, match: Match, instructions_max: int) -> int:
        """Do a step of the comparison with one topic, and return its work."""
        executed = self.expression.steps
        match.advance(instructions_max)
        if match.result is not None:
            self._match = None
            if match.result and self._may_describe(match.name):
                self.found.append(match.name)
        return (self.expression.steps - executed) // INSTRUCTIONS_PER_NAME


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
