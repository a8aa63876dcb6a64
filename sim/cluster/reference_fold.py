"""Reference implementation of metadata replay: applies the committed events to rows (dicts of fields), by code that
shares nothing with `kraft.image.replay` (M2).

It is slow and short on purpose: one dict, a row for each object of the metadata, and a few lines for each event.
Production's images are persistent maps of leaves, counts and interned tuples; an error in those shows as a row that
differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Any

from kraft.image import events
from kraft.image.events import UNCHANGED_LEADER, UNCHANGED_RECOVERY_STATE, Event
from kraft.image.image import MetadataImage
from kraft.image.partitions import PartitionState
from kraft.image.registrations import BrokerRegistration, ConfigResourceType, ControllerRegistration

BROKER, CONTROLLER, TOPIC, PARTITION, CONFIG, FEATURE, CLUSTER = (
    "broker", "controller", "topic", "partition", "config", "feature", "cluster",
)  # fmt: skip
NO_CLUSTER = MappingProxyType({"id": None, "release": None, "next producer id": 0})

Place = tuple[Any, ...]
"""Key of one object of the metadata: ("partition", topic id, index), ("config", resource type, resource name), …"""
Row = dict[str, Any]


class ReferenceFold:
    """Metadata as rows. `rows`: key of each object → its fields. `apply` collects the keys that it changes until
    `differences` compares them."""

    def __init__(self) -> None:
        self.rows: dict[Place, Row] = {(CLUSTER,): dict(NO_CLUSTER)}
        self._touched: dict[Place, None] = {}

    def apply(self, event: Event) -> None:
        """Apply the next committed event."""
        match event:
            case events.RegisterBroker():
                self._put((BROKER, event.broker_id), _fields(event, events.RegisterBroker))
            case events.UnregisterBroker():
                self._take((BROKER, event.broker_id))
            case events.BrokerRegistrationChange():
                self._change((BROKER, event.broker_id), event, "fenced", "in_controlled_shutdown", "log_dirs")
            case events.RegisterController():
                self._put((CONTROLLER, event.controller_id), _fields(event, events.RegisterController))
            case events.Topic():
                self._put((TOPIC, event.topic_id), {"name": event.name})
            case events.Partition():
                row = _fields(event, events.Partition)
                del row["topic_id"], row["partition_id"]
                self._put((PARTITION, event.topic_id, event.partition_id), row)
            case events.PartitionChange():
                self._change_partition(event)
            case events.RemoveTopic():
                self._remove_topic(event)
            case events.ClearElr():
                self._clear_elr(event.topic_name)
            case events.Config():
                self._set_config(event)
            case events.FeatureLevel():
                self._set_feature(event)
            case events.ProducerIds():
                self._put((CLUSTER,), self.rows[CLUSTER,] | {"next producer id": event.next_producer_id})
            case events.ClusterIdentity():
                self._put((CLUSTER,), self.rows[CLUSTER,] | {"id": event.cluster_id})
            case events.NoOp():
                pass
            case _:
                raise TypeError(f"the reference does not know {type(event).__name__}")

    def differences(self, image: MetadataImage) -> tuple[int, list[str]]:
        """Return the number of objects changed since the last comparison, and the differences between the image and the
        rows for these objects."""
        touched, self._touched = self._touched, {}
        return len(touched), list(self._compare(image, touched))

    def all_differences(self, image: MetadataImage) -> list[str]:
        """Return all differences between image and rows, including objects that only one of them has."""
        places = dict.fromkeys(self.rows) | dict.fromkeys(_places(image))
        return list(self._compare(image, places))

    def _compare(self, image: MetadataImage, places: Iterable[Place]) -> Iterator[str]:
        for place in places:
            due, held = self.rows.get(place), _row_in(image, place)
            if due != held:
                yield f"{' '.join(map(str, place))}: {_told(held, due)}, due is {_told(due, held)}"

    # rows

    def _put(self, place: Place, row: Row) -> None:
        self.rows[place] = row
        self._touched[place] = None

    def _take(self, place: Place) -> None:
        self.rows.pop(place, None)
        self._touched[place] = None

    def _change(self, place: Place, event: Event, *names: str) -> None:
        """Change fields of a row; None leaves a field unchanged."""
        told = {name: getattr(event, name) for name in names}
        self._put(place, self.rows[place] | {name: value for name, value in told.items() if value is not None})

    # events that change more than one field

    def _change_partition(self, event: events.PartitionChange) -> None:
        place = (PARTITION, event.topic_id, event.partition_id)
        names = ("replicas", "isr", "removing", "adding", "directories", "elr", "last_known_elr")
        self._change(place, event, *names)
        row = self.rows[place]
        row["partition_epoch"] += 1
        if event.leader != UNCHANGED_LEADER:
            row["leader"] = event.leader
            row["leader_epoch"] += 1
        if event.leader_recovery_state != UNCHANGED_RECOVERY_STATE:
            row["leader_recovery_state"] = event.leader_recovery_state

    def _remove_topic(self, event: events.RemoveTopic) -> None:
        name = self.rows[TOPIC, event.topic_id]["name"]
        self._take((TOPIC, event.topic_id))
        self._take((CONFIG, int(ConfigResourceType.TOPIC), name))
        for place in [place for place in self.rows if place[:2] == (PARTITION, event.topic_id)]:
            self._take(place)

    def _clear_elr(self, topic_name: str) -> None:
        for place, row in list(self.rows.items()):
            is_meant = place[0] == PARTITION and topic_name in ("", self.rows[TOPIC, place[1]]["name"])
            if is_meant and row["isr"] and (row["elr"] or row["last_known_elr"]):
                epoch = row["partition_epoch"] + 1
                self._put(place, row | {"elr": (), "last_known_elr": (), "partition_epoch": epoch})

    def _set_config(self, event: events.Config) -> None:
        place = (CONFIG, event.resource_type, event.resource_name)
        row = dict(self.rows.get(place, {}))
        row.pop(event.name, None)
        if event.value is not None:
            row[event.name] = event.value
        if row:
            self._put(place, row)
        else:
            self._take(place)

    def _set_feature(self, event: events.FeatureLevel) -> None:
        if event.level:
            self._put((FEATURE, event.name), {"level": event.level})
        else:
            self._take((FEATURE, event.name))
        if event.name == "metadata.version":
            self._put((CLUSTER,), self.rows[CLUSTER,] | {"release": event.release})


def _places(image: MetadataImage) -> Iterator[Place]:
    yield from ((BROKER, broker_id) for broker_id in image.brokers)
    yield from ((CONTROLLER, controller_id) for controller_id in image.controllers)
    yield from ((FEATURE, name) for name in image.features)
    yield from ((CONFIG, int(kind), name) for kind, name in image.configs)
    for topic in image.topics:
        yield TOPIC, topic.topic_id
        yield from ((PARTITION, topic.topic_id, index) for index, _ in topic.partitions())


def _row_in(image: MetadataImage, place: Place) -> Row | None:
    """Return the image's row for the object with this key; None if the image does not have the object."""
    match place:
        case ("broker", broker_id):
            return _named(image.brokers.get(broker_id))
        case ("controller", controller_id):
            return _named(image.controllers.get(controller_id))
        case ("topic", topic_id):
            topic = image.topics.get_by_id(topic_id)
            return None if topic is None else {"name": topic.name}
        case ("partition", topic_id, index):
            topic = image.topics.get_by_id(topic_id)
            return _named(None if topic is None else topic.find(index))
        case ("config", kind, name):
            return dict(image.configs_of(ConfigResourceType(kind), name)) or None
        case ("feature", name):
            level = image.features.get(name)
            return None if level is None else {"level": level}
    return {"id": image.cluster_id, "release": image.release, "next producer id": image.next_producer_id}


def _named(value: BrokerRegistration | ControllerRegistration | PartitionState | None) -> Row | None:
    return None if value is None else value._asdict()


def _fields(event: Event, event_class: type) -> Row:
    return {name: getattr(event, name) for name in event_class.__dataclass_fields__}  # type: ignore[attr-defined]


def _told(row: Row | None, other: Row | None) -> str:
    """Describe the fields of a row that differ from the other row."""
    if row is None:
        return "not there"
    unlike = {name: value for name, value in row.items() if other is None or other.get(name, row) != value}
    return ", ".join(f"{name} {value}" for name, value in unlike.items()) or "less"
