"""Checks that the images that nodes publish agree, equal an independent replay of the committed events, and advance in
each incarnation (M1, M2, M12).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import BrokerUnfenced, ImagePublished, MetadataFolded


class ImageEquality(Check):
    """Check that the image of an offset is the same on every node that publishes it (M1). One of the publishers is not
    a node but an independent replay of the committed bytes."""

    id: ClassVar[str] = "M1"
    statement: ClassVar[str] = "The image of an offset is the same on every node that publishes it."

    def __init__(self) -> None:
        super().__init__()
        self._digests: dict[int, tuple[str, int]] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {ImagePublished: self.published}

    def published(self, seen: ImagePublished) -> None:
        first = self._digests.setdefault(seen.offset, (seen.digest, seen.node))
        if first[1] != seen.node:
            self.count()
        if first[0] != seen.digest:
            self.fail(
                "two nodes publish different images of one offset",
                offset=seen.offset,
                node=seen.node,
                other_node=first[1],
            )


class ImageIsTheFold(Check):
    """Check that the image of the independent replay equals a reference implementation (M2). The check ImageEquality
    (M1) compares the image of the replay with the images of the nodes."""

    id: ClassVar[str] = "M2"
    statement: ClassVar[str] = "An image equals an independent fold of the committed events."

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {MetadataFolded: self.folded}

    def folded(self, seen: MetadataFolded) -> None:
        self.seen += seen.places
        for difference in seen.differences:
            self.fail("an image is not what the events say", offset=seen.offset, difference=difference)


class PublicationOrder(Check):
    id: ClassVar[str] = "M12"
    statement: ClassVar[str] = (
        "An incarnation of a node publishes increasing offsets, and a broker is unfenced only after it published its "
        "registration."
    )

    def __init__(self) -> None:
        super().__init__()
        self._published: dict[tuple[int, int], int] = {}
        self._furthest: dict[int, int] = {}
        """Node → the highest offset that any incarnation of it has published."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {ImagePublished: self.published, BrokerUnfenced: self.unfenced}

    def published(self, seen: ImagePublished) -> None:
        life = (seen.node, seen.incarnation)
        before = self._published.get(life, -1)
        self._published[life] = seen.offset
        self._furthest[seen.node] = max(self._furthest.get(seen.node, 0), seen.offset)
        if seen.offset < before:
            self.fail("a node published an older image", node=seen.node, offset=seen.offset, before=before)

    def unfenced(self, seen: BrokerUnfenced) -> None:
        """Check that the broker has published its registration before it is unfenced. The epoch of a broker is the
        offset of its registration."""
        self.count()
        furthest = self._furthest.get(seen.broker, 0)
        if furthest <= seen.broker_epoch:
            self.fail(
                "a broker was unfenced before it had published its registration",
                broker=seen.broker,
                epoch=seen.broker_epoch,
                published=furthest,
            )
