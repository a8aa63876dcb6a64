"""All topics, by name and by id, as one immutable value with a stable order of iteration.

Persistent maps iterate in an order that differs between processes, so they are never iterated directly. Iteration is by
name, and the sorted names are kept from one value to the next until a topic is created or deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from uuid import UUID

from rpds import HashTrieMap

from kraft.image.partitions import TopicImage


class TopicsImage:
    """Topics by name and by id. Immutable; iteration is in order of name."""

    __slots__ = ("_names", "by_name", "names_by_id", "replica_counts")

    def __init__(
        self,
        by_name: HashTrieMap[str, TopicImage] | None = None,
        names_by_id: HashTrieMap[UUID, str] | None = None,
        names: tuple[str, ...] | None = None,
        replica_counts: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self.by_name: HashTrieMap[str, TopicImage] = HashTrieMap() if by_name is None else by_name
        self.names_by_id: HashTrieMap[UUID, str] = HashTrieMap() if names_by_id is None else names_by_id
        self._names = names
        self.replica_counts = replica_counts
        """Broker id → number of its replicas over all topics."""

    def get(self, name: str) -> TopicImage | None:
        return self.by_name.get(name)

    def get_by_id(self, topic_id: UUID) -> TopicImage | None:
        name = self.names_by_id.get(topic_id)
        return None if name is None else self.by_name[name]

    def name_of(self, topic_id: UUID) -> str | None:
        return self.names_by_id.get(topic_id)

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names, sorted."""
        if self._names is None:
            self._names = tuple(sorted(self.by_name))
        return self._names

    @property
    def known_names(self) -> tuple[str, ...] | None:
        """The sorted names, or None if they have not been computed yet."""
        return self._names

    def __iter__(self) -> Iterator[TopicImage]:
        by_name = self.by_name
        for name in self.names:
            yield by_name[name]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicsImage):
            return NotImplemented
        return self.by_name == other.by_name

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TopicsImage({len(self)} topics)"
