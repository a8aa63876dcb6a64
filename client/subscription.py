"""The topics to which a consumer subscribes: a list of names, a pattern, or a regular expression that the coordinator
resolves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import structlog

from kraft.client.cluster import RETRIABLE, Cluster
from kraft.client.core.heartbeats import TopicSubscription
from kraft.client.core.records import KafkaError
from kraft.wire.error_codes import ErrorCode

log = structlog.get_logger("kraft.client")


class SubscribedTopics:
    """The topics of a subscription. A pattern must match the whole name. A topic in a list of names need not exist; a
    topic that does not exist is logged once as a warning. A subscription with `regex` has no names here: the
    coordinator of a consumer group (KIP-848) resolves it, in the syntax of RE2.

    `failed(error)` is called once for each topic with an error that is not transient, such as an invalid name. The
    other topics are read."""

    def __init__(
        self,
        cluster: Cluster,
        wanted: Iterable[str] | re.Pattern[str],
        failed: Callable[[KafkaError], None],
        *,
        regex: str = "",
    ) -> None:
        self.regex = regex
        self._cluster = cluster
        self._failed = failed
        self._pattern = wanted if isinstance(wanted, re.Pattern) else None
        self._listed = [] if isinstance(wanted, re.Pattern) else sorted(set(wanted))
        self._is_known = False
        self._reported: set[tuple[str, ErrorCode]] = set()

    async def names(self) -> list[str]:
        """Return the topic names, sorted. For a pattern, these are the names of known, existing topics that match."""
        if not self._is_known:
            await self.refresh()
        if self._pattern is None:
            return self._listed
        return [name for name in self._cluster.topic_names() if self._pattern.fullmatch(name)]

    async def for_coordinator(self) -> TopicSubscription:
        """Return the subscription of a member of a consumer group."""
        return TopicSubscription(tuple(await self.names()), self.regex)

    async def refresh(self) -> None:
        """Request metadata of the subscribed topics, unless the coordinator resolves them."""
        if self.regex:
            return
        wanted = None if self._pattern is not None else self._listed
        errors = await self._cluster.refresh(wanted, timeout_ms=float("inf"))
        self._is_known = True
        for topic, code in sorted(errors.items()):
            if (topic, code) in self._reported:
                continue
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._reported.add((topic, code))
                log.warning("a subscribed topic does not exist (yet)", topic=topic)
            elif code not in RETRIABLE:
                self._reported.add((topic, code))
                self._failed(KafkaError(code, f"topic {topic} is not available"))


def subscribed_topics(
    topics: Iterable[str] | str | re.Pattern[str],
    cluster: Cluster,
    failed: Callable[[KafkaError], None],
    *,
    is_re2: bool,
) -> SubscribedTopics:
    """Return the topics to which an application subscribes: names, one name, or a pattern, which is compiled or a
    string that begins with `^`. `is_re2` says that the coordinator resolves such a string."""
    if isinstance(topics, str) and topics.startswith("^"):
        if is_re2:
            return SubscribedTopics(cluster, (), failed, regex=topics)
        return SubscribedTopics(cluster, re.compile(topics), failed)
    return SubscribedTopics(cluster, [topics] if isinstance(topics, str) else topics, failed)
