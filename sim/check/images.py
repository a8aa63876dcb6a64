"""M1, M2 and M12: the images that nodes publish are one history, it is what the committed events say, and each life of
a node goes through it forwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import BrokerUnfenced, ImagePublished, MetadataFolded


class ImageEquality(Check):
    """One of those that publish folds the committed bytes by itself."""

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
    """The image of the fold, which M1 compares with those of the nodes, is compared with a reference."""

    id: ClassVar[str] = "M2"
    statement: ClassVar[str] = "An image is what an independent fold of the committed events says."

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {MetadataFolded: self.folded}

    def folded(self, seen: MetadataFolded) -> None:
        self.seen += seen.places
        for difference in seen.differences:
            self.fail("an image is not what the events say", offset=seen.offset, difference=difference)


class PublicationOrder(Check):
    id: ClassVar[str] = "M12"
    statement: ClassVar[str] = (
        "A life of a node publishes rising offsets, and a broker is unfenced only after it has published its "
        "registration."
    )

    def __init__(self) -> None:
        super().__init__()
        self._published: dict[tuple[int, int], int] = {}
        self._furthest: dict[int, int] = {}
        """Node → how far any life of it has come."""

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
        """A broker's epoch is the offset of its registration."""
        self.count()
        furthest = self._furthest.get(seen.broker, 0)
        if furthest <= seen.broker_epoch:
            self.fail(
                "a broker was unfenced before it had published its registration",
                broker=seen.broker,
                epoch=seen.broker_epoch,
                published=furthest,
            )
