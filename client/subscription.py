"""The topics that a consumer subscribes to: a list, or those whose names fit a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import structlog

from kraft.client.cluster import RETRIABLE, Cluster
from kraft.client.core.records import KafkaError
from kraft.wire.error_codes import ErrorCode

log = structlog.get_logger("kraft.client")


class Topics:
    """`pattern` must fit the whole name. Topics that do not exist (yet) may be listed: a warning tells of each, once.
    `failed(error)` is called for one that asking again does not bring, such as a name that no topic can have, once; the
    others go on."""

    def __init__(
        self,
        cluster: Cluster,
        wanted: Iterable[str] | re.Pattern[str],
        failed: Callable[[KafkaError], None],
    ) -> None:
        self._cluster = cluster
        self._failed = failed
        self._pattern = wanted if isinstance(wanted, re.Pattern) else None
        self._listed = [] if isinstance(wanted, re.Pattern) else sorted(set(wanted))
        self._is_known = False
        self._told: set[tuple[str, ErrorCode]] = set()

    async def names(self) -> list[str]:
        """Sorted. For a pattern those that exist, as far as is known."""
        if not self._is_known:
            await self.refresh()
        if self._pattern is None:
            return self._listed
        return [name for name in self._cluster.topic_names() if self._pattern.fullmatch(name)]

    async def refresh(self) -> None:
        """Ask what there is now."""
        wanted = None if self._pattern is not None else self._listed
        errors = await self._cluster.refresh(wanted, timeout_ms=float("inf"))
        self._is_known = True
        for topic, code in sorted(errors.items()):
            if (topic, code) in self._told:
                continue
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._told.add((topic, code))
                log.warning("a topic that is subscribed does not exist (yet)", topic=topic)
            elif code not in RETRIABLE:
                self._told.add((topic, code))
                self._failed(KafkaError(code, f"topic {topic} is not available"))
