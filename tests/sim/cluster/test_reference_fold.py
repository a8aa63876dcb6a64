"""Tests that every difference of an image from the committed events is found (M2)."""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest

from kraft.image import ImageBuilder, events
from kraft.image.events import Event, encode_event
from kraft.image.image import EMPTY_IMAGE
from kraft.image.registrations import ConfigResourceType, Endpoint
from kraft.sim.check.images import ImageIsTheFold
from kraft.sim.check.observations import MetadataFolded, Observation
from kraft.sim.cluster.fold import MetadataFold
from kraft.sim.cluster.labels import TopicLabels
from kraft.sim.cluster.reference_fold import ReferenceFold
from kraft.wire.records import Record, encode_batch
from tests.stages.tables import replace_row

replay: Any = import_module("kraft.image.replay")  # the package has a function of this name

TOPIC, OTHER = UUID(int=7), UUID(int=8)
DIRECTORY = UUID(int=1000)
TOPIC_CONFIG, BROKER_CONFIG = int(ConfigResourceType.TOPIC), int(ConfigResourceType.BROKER)

STORY: list[tuple[Event, ...]] = [
    (events.ClusterIdentity("c"), events.FeatureLevel("metadata.version", 1, "0.1"), events.FeatureLevel("odd", 2)),
    (events.RegisterController(101, UUID(int=1), (Endpoint("C", "h", 1),)), events.NoOp()),
    (events.RegisterBroker(1, UUID(int=2), 5, log_dirs=(DIRECTORY,)), events.RegisterBroker(2, UUID(int=3), 6)),
    (events.BrokerRegistrationChange(1, 5, fenced=False), events.BrokerRegistrationChange(2, 6, fenced=False)),
    (events.Topic("t", TOPIC), *(events.Partition(TOPIC, index, (1, 2), (1, 2), leader=1) for index in range(300))),
    (events.Topic("u", OTHER), events.Partition(OTHER, 0, (1, 2), (1,), leader=1, elr=(2,))),
    (events.Config(TOPIC_CONFIG, "t", "retention.ms", "1"), events.Config(BROKER_CONFIG, "", "a", "b")),
    (events.PartitionChange(TOPIC, 299, isr=(2,), leader=2, elr=(1,)), events.PartitionChange(OTHER, 0, isr=())),
    (events.PartitionChange(TOPIC, 1, replicas=(2, 1), adding=(2,), directories=(DIRECTORY, DIRECTORY)),),
    (events.ClearElr("t"), events.ClearElr(), events.ProducerIds(1, 5, 1000)),
    (events.Config(BROKER_CONFIG, "", "a", None), events.FeatureLevel("odd", 0)),
    (events.BrokerRegistrationChange(2, 6, in_controlled_shutdown=True, fenced=True),),
    (events.UnregisterBroker(2, 6), events.RemoveTopic(TOPIC)),
]


def judged() -> ImageIsTheFold:
    """Return the findings of M2 after the history was replayed from its bytes."""
    check = ImageIsTheFold()

    def tell(seen: Observation) -> None:
        if isinstance(seen, MetadataFolded):
            check.folded(seen)

    fold = MetadataFold(
        tell, lambda _: None, lambda *_: 1, lambda: 0, TopicLabels(), lambda *_: True, defaultdict(lambda: 1)
    )
    offset = 0
    for batch in STORY:
        records = [Record(at, 0, None, encode_event(event)) for at, event in enumerate(batch)]
        fold.take([bytes(encode_batch(records, base_offset=offset, leader_epoch=1))])
        offset += len(batch)
    fold.finish()
    return check


def test_the_metadata_image_agrees_with_the_reference_implementation() -> None:
    check = judged()
    assert not check.findings
    assert check.seen > 600


def keeps_its_configs(builder: ImageBuilder, event: events.RemoveTopic) -> None:
    configs = builder.configs
    replay.replay_remove_topic(builder, event)
    builder.configs = configs


def keeps_the_epoch(builder: ImageBuilder, event: events.PartitionChange) -> None:
    topic = builder.topic(event.topic_id)
    old = topic.get(event.partition_id)
    topic.put(event.partition_id, replay.changed_partition(old, event)._replace(partition_epoch=old.partition_epoch))


def clears_if_no_replica_is_in_sync(builder: ImageBuilder, event: events.ClearElr) -> None:
    replay.replay_clear_elr(builder, event)
    if not event.topic_name:
        topic = builder.topic(OTHER)
        topic.put(0, topic.get(0)._replace(elr=()))


def takes_a_neighbour_along(builder: ImageBuilder, event: events.PartitionChange) -> None:
    """Planted bug: an event also changes a row that it does not name."""
    replay.replay_partition_change(builder, event)
    topic = builder.topic(event.topic_id)
    topic.put(0, topic.get(0)._replace(leader=99))


@pytest.mark.parametrize(
    ("event_class", "broken", "told"),
    [
        (events.PartitionChange, keeps_the_epoch, "partition_epoch"),
        (events.RemoveTopic, keeps_its_configs, "retention.ms"),
        (events.ClearElr, clears_if_no_replica_is_in_sync, "elr"),
        (events.ClearElr, replay.replay_nothing, "elr"),
        (events.Config, replay.replay_nothing, "not there"),
        (events.BrokerRegistrationChange, replay.replay_nothing, "fenced"),
        (events.FeatureLevel, replay.replay_nothing, "feature"),
        (events.ProducerIds, replay.replay_nothing, "next producer id"),
        (events.UnregisterBroker, replay.replay_nothing, "broker 2"),
        (events.RegisterController, replay.replay_nothing, "controller 101"),
        (events.ClusterIdentity, replay.replay_nothing, "cluster"),
    ],
)
def test_checks_catch_an_image_builder_that_applies_an_event_wrongly(
    monkeypatch: pytest.MonkeyPatch, event_class: type[Event], broken: Any, told: str
) -> None:
    replace_row(monkeypatch, replay.REPLAY, event_class, broken)
    findings = judged().findings
    assert findings
    assert any(told in str(finding) for finding in findings)


def test_metadata_objects_without_events_are_compared_with_the_reference_at_the_end_of_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fold = ReferenceFold()
    builder = ImageBuilder(EMPTY_IMAGE)
    story = [event for batch in STORY[:-1] for event in batch]
    for event in story:
        fold.apply(event)
    replace_row(monkeypatch, replay.REPLAY, events.PartitionChange, takes_a_neighbour_along)
    for event in story:
        builder.apply(event)
    image = builder.build(len(story), 1)
    assert {one.split(":")[0] for one in fold.all_differences(image)} == {
        f"partition {TOPIC} 0", f"partition {OTHER} 0",
    }  # fmt: skip
