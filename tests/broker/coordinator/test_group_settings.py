"""The settings of consumer groups: of the group, of the broker, and changed ones."""

from __future__ import annotations

from kraft.broker.consumer_group.settings import MigrationPolicy
from kraft.broker.coordinator.group_settings import KNOWN_MAX, GroupSettingsLookup, consumer_group_settings
from kraft.broker.coordinator.share_group_settings import share_group_settings, share_membership_settings
from kraft.broker.serving.dynamic_configs import DynamicConfigs
from kraft.image import ConfigResourceType, ImageDelta, MetadataImage, events
from tests.stages.decided_cluster import node_config
from tests.stages.images import image_of

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_a_group_without_overrides_has_the_settings_of_the_broker() -> None:
    node = node_config(
        group_consumer_max_size="7",
        group_consumer_assignors="org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform",
        group_consumer_migration_policy="Upgrade",
        group_consumer_heartbeat_interval_ms="6000",
    )
    settings = consumer_group_settings({}, node)
    assert (settings.session_timeout_ms, settings.heartbeat_interval_ms) == (45_000, 6_000)
    assert settings.members_max == 7
    assert settings.assignors == ("range", "uniform")
    assert settings.migration_policy is MigrationPolicy.UPGRADE


def test_a_changed_override_takes_effect_at_the_next_look_up() -> None:
    images = [image_of()]
    lookup = GroupSettingsLookup(DynamicConfigs(node_config()), lambda: images[-1], consumer_group_settings)
    assert lookup.of("billing").session_timeout_ms == 45_000
    for text, expected in (("50000", 50_000), ("55000", 55_000), (None, 45_000)):
        changed = image_of(
            *([] if text is None else [events.Config(ConfigResourceType.GROUP, "billing", SESSION, text)])
        )
        images.append(changed)
        assert lookup.of("billing").session_timeout_ms == expected
        assert lookup.of("other").session_timeout_ms == 45_000


def test_the_assignment_interval_is_the_groups_or_the_brokers() -> None:
    node = node_config(group_consumer_assignment_interval_ms="2000", group_share_assignment_interval_ms="3000")
    assert consumer_group_settings({}, node_config()).assignment_interval_ms == 0
    assert consumer_group_settings({}, node).assignment_interval_ms == 2_000
    assert consumer_group_settings({"consumer.assignment.interval.ms": "500"}, node).assignment_interval_ms == 500
    group = events.Config(ConfigResourceType.GROUP, "billing", "share.assignment.interval.ms", "700")
    found = [share_membership_settings(name, node, image_of(group)) for name in ("billing", "other")]
    assert [one.assignment_interval_ms for one in found] == [700, 3_000]


def test_settings_are_computed_once_for_each_change() -> None:
    image = image_of(events.Config(ConfigResourceType.GROUP, "billing", INTERVAL, "6000"))
    lookup = GroupSettingsLookup(DynamicConfigs(node_config()), lambda: image, consumer_group_settings)
    assert lookup.of("billing") is lookup.of("billing")
    assert lookup.of("one") is lookup.of("another")


def test_a_dynamic_broker_setting_changes_the_settings_of_all_groups() -> None:
    group = events.Config(ConfigResourceType.GROUP, "billing", SESSION, "50000")
    before = image_of(group)
    after = image_of(
        group, events.Config(ConfigResourceType.BROKER, "", "group.consumer.heartbeat.interval.ms", "6000")
    )
    dynamic = DynamicConfigs(node_config())
    images: list[MetadataImage] = [before]
    lookup = GroupSettingsLookup(dynamic, lambda: images[-1], consumer_group_settings)
    assert [lookup.of(name).heartbeat_interval_ms for name in ("billing", "other")] == [5_000, 5_000]
    images.append(after)
    dynamic.apply(after, ImageDelta.between(before, after))
    assert [lookup.of(name).heartbeat_interval_ms for name in ("billing", "other")] == [6_000, 6_000]
    assert lookup.of("billing").session_timeout_ms == 50_000


def test_the_settings_of_a_limited_number_of_groups_are_kept() -> None:
    names = [f"g{number}" for number in range(KNOWN_MAX + 1)]
    image = image_of(*(events.Config(ConfigResourceType.GROUP, name, SESSION, "50000") for name in names))
    lookup = GroupSettingsLookup(DynamicConfigs(node_config()), lambda: image, consumer_group_settings)
    assert {lookup.of(name).session_timeout_ms for name in names} == {50_000}
    assert len(lookup) == 1


def test_settings_of_a_share_group_are_its_overrides_and_the_brokers() -> None:
    image = image_of(events.Config(ConfigResourceType.GROUP, "jobs", "share.delivery.count.limit", "3"))
    lookup = GroupSettingsLookup(DynamicConfigs(node_config()), lambda: image, share_group_settings)
    assert lookup.of("jobs").limits.delivery_count_max == 3
    assert lookup.of("others").limits.delivery_count_max == 5
