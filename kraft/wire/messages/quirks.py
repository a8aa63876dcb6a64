"""Conversions between versions that need more than dropping a field or giving it its default.

Each quirk converts whole messages between the class of an old version and the newest one. `_carry` copies fields of the
same name; the functions here handle the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

from kraft.wire.api_keys import ApiKey
from kraft.wire.messages.schema import ENTITY, fields_of


class MessageDirection(Enum):
    """Half of an API: request or response."""

    REQUEST = "request"
    RESPONSE = "response"


@dataclass(frozen=True, slots=True)
class Quirk:
    """Conversions of one message between old versions and the newest: `upgrade(old message, newest class, version)` and
    `downgrade(newest message, old class, version)`, for the versions in `versions`."""

    versions: Container[int]
    upgrade: Callable[[Any, Any, int], Any]
    downgrade: Callable[[Any, Any, int], Any]


def _carry(message: Any, target: Any, **replaced: Any) -> Any:
    """Return a message of class `target` with the fields of the same name, nested ones converted. Values in `replaced`
    are used instead of the fields of that name."""
    have = {field.name: field for field in fields_of(message.__class__)}
    arguments: dict[str, Any] = {}
    for field in fields_of(target):
        if field.name in replaced:
            arguments[field.name] = replaced[field.name]
        elif field.name not in have:
            arguments[field.name] = field.default
        else:
            value = getattr(message, field.name)
            if value is None and not field.is_nullable and field.kind != "uuid":
                value = () if field.is_array else field.default
            if field.kind == ENTITY and value is not None:
                value = tuple(_carry(v, field.entity) for v in value) if field.is_array else _carry(value, field.entity)
            arguments[field.name] = value
    return target(**arguments)


def _nested(cls: Any, name: str) -> Any:
    return next(field.entity for field in fields_of(cls) if field.name == name)


# DeleteTopics: names before v6, names or ids from v6.


def _upgrade_delete_topics(message: Any, newest: Any, version: int) -> Any:
    topic = _nested(newest, "topics")
    return _carry(message, newest, topics=tuple(topic(name=name, topic_id=None) for name in message.topic_names))


def _downgrade_delete_topics(message: Any, old: Any, version: int) -> Any:
    if any(topic.name is None for topic in message.topics):
        raise ValueError(f"DeleteTopics version {version} cannot name a topic by its id, use version 6")
    return _carry(message, old, topic_names=tuple(topic.name for topic in message.topics))


# Metadata v0: an empty list means all topics. In later versions null means all topics, and an empty list means none.


def _upgrade_metadata(message: Any, newest: Any, version: int) -> Any:
    upgraded = _carry(message, newest)
    return upgraded if message.topics else _carry(upgraded, newest, topics=None)


def _downgrade_metadata(message: Any, old: Any, version: int) -> Any:
    if message.topics is not None and not message.topics:
        raise ValueError("Metadata version 0 cannot ask for no topics, use version 1")
    return _carry(message, old)


# UpdateFeatures: v0 has allow_downgrade where later versions have upgrade_type. Before v2 each feature has a result.

UPGRADE = 1
SAFE_DOWNGRADE = 2


def _upgrade_update_features(message: Any, newest: Any, version: int) -> Any:
    feature = _nested(newest, "feature_updates")
    updates = tuple(
        _carry(update, feature, upgrade_type=SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE)
        for update in message.feature_updates
    )
    return _carry(message, newest, feature_updates=updates)


def _downgrade_update_features(message: Any, old: Any, version: int) -> Any:
    feature = _nested(old, "feature_updates")
    updates = tuple(
        _carry(update, feature, allow_downgrade=update.upgrade_type != UPGRADE) for update in message.feature_updates
    )
    return _carry(message, old, feature_updates=updates)


# ApiVersions: before v4, features that a version-3 reader would refuse (min 0) are left out. Level 0 is never shown.


def _upgrade_api_versions(message: Any, newest: Any, version: int) -> Any:
    return _carry(message, newest)


def _downgrade_api_versions(message: Any, old: Any, version: int) -> Any:
    downgraded = _carry(message, old)
    supported = tuple(f for f in downgraded.supported_features if version >= 4 or f.min_version > 0)
    finalized = tuple(f for f in downgraded.finalized_features if f.max_version_level > 0)
    return _carry(downgraded, old, supported_features=supported, finalized_features=finalized)


# FindCoordinator: before v4 a request has one key, and its coordinator is at the top level of the response.


def _upgrade_find_coordinator(message: Any, newest: Any, version: int) -> Any:
    return _carry(message, newest, coordinator_keys=(message.key,))


def _downgrade_find_coordinator(message: Any, old: Any, version: int) -> Any:
    if len(message.coordinator_keys) != 1:
        raise ValueError(f"FindCoordinator version {version} asks for one key, use version 4 for several")
    return _carry(message, old, key=message.coordinator_keys[0])


def _upgrade_coordinator(message: Any, newest: Any, version: int) -> Any:
    return _carry(message, newest, coordinators=(_carry(message, _nested(newest, "coordinators")),))


def _downgrade_coordinator(message: Any, old: Any, version: int) -> Any:
    (coordinator,) = message.coordinators
    return _carry(coordinator, old, **_throttle_of(message, old))


# OffsetFetch: one group before v8, with its topics at the top level of request and response. v1 has only partition
# errors.


def _upgrade_offset_fetch(message: Any, newest: Any, version: int) -> Any:
    group = _nested(newest, "groups")
    topic = _nested(group, "topics")
    topics = None if message.topics is None else tuple(_carry(one, topic) for one in message.topics)
    return _carry(message, newest, groups=(_carry(message, group, topics=topics),))


def _downgrade_offset_fetch(message: Any, old: Any, version: int) -> Any:
    if len(message.groups) != 1:
        raise ValueError(f"OffsetFetch version {version} asks for one group, use version 8 for several")
    (group,) = message.groups
    if group.topics is None and version < 2:
        raise ValueError("OffsetFetch version 1 cannot ask for all topics, use version 2")
    topic = _nested(old, "topics")
    topics = None if group.topics is None else tuple(_carry(one, topic) for one in group.topics)
    stable = {"require_stable": message.require_stable} if version >= 7 else {}
    return _carry(group, old, topics=topics, **stable)


def _upgrade_fetched_offsets(message: Any, newest: Any, version: int) -> Any:
    group = _nested(newest, "groups")
    topics = tuple(_carry(one, _nested(group, "topics")) for one in message.topics)
    return _carry(message, newest, groups=(_carry(message, group, topics=topics),))


def _downgrade_fetched_offsets(message: Any, old: Any, version: int) -> Any:
    (group,) = message.groups
    topics = tuple(_carry(one, _nested(old, "topics")) for one in group.topics)
    return _carry(group, old, topics=topics, **_throttle_of(message, old))


# LeaveGroup: before v3 a request has one member, whose error is that of the response.


def _upgrade_leave_group(message: Any, newest: Any, version: int) -> Any:
    return _carry(message, newest, members=(_carry(message, _nested(newest, "members")),))


def _downgrade_leave_group(message: Any, old: Any, version: int) -> Any:
    if len(message.members) != 1:
        raise ValueError(f"LeaveGroup version {version} names one member, use version 3 for several")
    return _carry(message, old, member_id=message.members[0].member_id)


def _upgrade_left_group(message: Any, newest: Any, version: int) -> Any:
    return _carry(message, newest)


def _downgrade_left_group(message: Any, old: Any, version: int) -> Any:
    errors = [message.error_code, *(member.error_code for member in message.members)]
    return _carry(message, old, error_code=next((error for error in errors if error), errors[0]))


# AddPartitionsToTxn: one transaction before v4, with its fields at the top level of request and response.


def _upgrade_add_partitions(message: Any, newest: Any, version: int) -> Any:
    transaction = _nested(newest, "transactions")
    topics = tuple(_carry(one, _nested(transaction, "topics")) for one in message.v3_and_below_topics)
    row = transaction(
        transactional_id=message.v3_and_below_transactional_id,
        producer_id=message.v3_and_below_producer_id,
        producer_epoch=message.v3_and_below_producer_epoch,
        verify_only=False,
        topics=topics,
    )
    return newest(transactions=(row,))


def _downgrade_add_partitions(message: Any, old: Any, version: int) -> Any:
    if len(message.transactions) != 1 or message.transactions[0].verify_only:
        raise ValueError(f"AddPartitionsToTxn version {version} adds to one transaction, use version 4 for more")
    (row,) = message.transactions
    return old(
        v3_and_below_transactional_id=row.transactional_id,
        v3_and_below_producer_id=row.producer_id,
        v3_and_below_producer_epoch=row.producer_epoch,
        v3_and_below_topics=tuple(_carry(one, _nested(old, "v3_and_below_topics")) for one in row.topics),
    )


def _upgrade_added_partitions(message: Any, newest: Any, version: int) -> Any:
    result = _nested(newest, "results_by_transaction")
    topic = _nested(result, "topic_results")
    topics = tuple(_carry(one, topic) for one in message.results_by_topic_v3_and_below)
    return _carry(message, newest, results_by_transaction=(result(transactional_id="", topic_results=topics),))


def _downgrade_added_partitions(message: Any, old: Any, version: int) -> Any:
    topic = _nested(old, "results_by_topic_v3_and_below")
    topics = tuple(_carry(one, topic) for result in message.results_by_transaction for one in result.topic_results)
    return _carry(message, old, results_by_topic_v3_and_below=topics)


def _throttle_of(message: Any, old: Any) -> dict[str, Any]:
    has_throttle = any(field.name == "throttle_time" for field in fields_of(old))
    return {"throttle_time": message.throttle_time} if has_throttle else {}


QUIRKS: Mapping[tuple[int, MessageDirection], Quirk] = MappingProxyType(
    {
        (ApiKey.DELETE_TOPICS, MessageDirection.REQUEST): Quirk(
            range(1, 6), _upgrade_delete_topics, _downgrade_delete_topics
        ),
        (ApiKey.METADATA, MessageDirection.REQUEST): Quirk(range(1), _upgrade_metadata, _downgrade_metadata),
        (ApiKey.UPDATE_FEATURES, MessageDirection.REQUEST): Quirk(
            range(1), _upgrade_update_features, _downgrade_update_features
        ),
        (ApiKey.API_VERSIONS, MessageDirection.RESPONSE): Quirk(
            range(3, 5), _upgrade_api_versions, _downgrade_api_versions
        ),
        (ApiKey.FIND_COORDINATOR, MessageDirection.REQUEST): Quirk(
            range(4), _upgrade_find_coordinator, _downgrade_find_coordinator
        ),
        (ApiKey.FIND_COORDINATOR, MessageDirection.RESPONSE): Quirk(
            range(4), _upgrade_coordinator, _downgrade_coordinator
        ),
        (ApiKey.OFFSET_FETCH, MessageDirection.REQUEST): Quirk(
            range(8), _upgrade_offset_fetch, _downgrade_offset_fetch
        ),
        (ApiKey.OFFSET_FETCH, MessageDirection.RESPONSE): Quirk(
            range(8), _upgrade_fetched_offsets, _downgrade_fetched_offsets
        ),
        (ApiKey.ADD_PARTITIONS_TO_TXN, MessageDirection.REQUEST): Quirk(
            range(4), _upgrade_add_partitions, _downgrade_add_partitions
        ),
        (ApiKey.ADD_PARTITIONS_TO_TXN, MessageDirection.RESPONSE): Quirk(
            range(4), _upgrade_added_partitions, _downgrade_added_partitions
        ),
        (ApiKey.LEAVE_GROUP, MessageDirection.REQUEST): Quirk(range(3), _upgrade_leave_group, _downgrade_leave_group),
        (ApiKey.LEAVE_GROUP, MessageDirection.RESPONSE): Quirk(range(3), _upgrade_left_group, _downgrade_left_group),
    }
)
