"""Features: levels that this release supports, levels of a new cluster, and when a level may be finalized (KIP-584).

Invariants: a finalized level is inside the range of every registered broker and controller. A request succeeds or fails
as a whole. A downgrade must be requested by its type and lose no metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kraft.control.commands import AdminRequest
from kraft.control.decision import Context, Decision
from kraft.image import FeatureRange, MetadataImage
from kraft.image.events import EVENT_VERSIONS_BY_METADATA_VERSION, Event, FeatureLevel
from kraft.image.image import ELR_FEATURE, GROUP_FEATURE, METADATA_VERSION_FEATURE, SHARE_FEATURE, TRANSACTION_FEATURE
from kraft.wire.error_codes import ErrorCode

RELEASE = "0.1.0"
"""The release that introduced the newest metadata.version of the table below."""

METADATA_VERSIONS: Mapping[int, str] = MappingProxyType({25: "4.0-IV3", 26: "4.1-IV0", 27: "4.1-IV1"})
"""Levels of metadata.version that this release can run, with Kafka's names."""

SUPPORTED_FEATURES: tuple[FeatureRange, ...] = (
    FeatureRange(ELR_FEATURE, 0, 1),
    FeatureRange(GROUP_FEATURE, 0, 1),
    FeatureRange(METADATA_VERSION_FEATURE, min(METADATA_VERSIONS), max(METADATA_VERSIONS)),
    FeatureRange(SHARE_FEATURE, 0, 1),
    FeatureRange(TRANSACTION_FEATURE, 0, 2),
)
"""The feature ranges with which every node of this release registers."""

BOOTSTRAP_FEATURES: tuple[tuple[str, int], ...] = (
    (METADATA_VERSION_FEATURE, max(METADATA_VERSIONS)),
    (ELR_FEATURE, 1),
    (GROUP_FEATURE, 1),
    (SHARE_FEATURE, 1),
    (TRANSACTION_FEATURE, 2),
)
"""The feature levels of a new cluster. Eligible leader replicas are always on (docs/deviations.md)."""

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class _Refusal(NamedTuple):
    code: ErrorCode
    message: str


def unsupported_feature(image: MetadataImage, features: Iterable[FeatureRange]) -> str | None:
    """Return a sentence about the first finalized feature whose level is outside these ranges; None if there
    is none."""
    ranges = {feature.name: feature for feature in features}
    for name in sorted(image.features):
        level = image.features[name]
        found = ranges.get(name, FeatureRange(name, 0, 0))
        if not found.min_level <= level <= found.max_level:
            return (
                f"{name} is finalized at level {level}, but this node supports {found.min_level} to "
                f"{found.max_level}; install release {image.release or RELEASE} or newer"
            )
    return None


def bootstrap_feature_events() -> list[Event]:
    """Return the events that set the features of a new cluster."""
    return [
        FeatureLevel(name, level, RELEASE if name == METADATA_VERSION_FEATURE else None)
        for name, level in BOOTSTRAP_FEATURES
    ]


def decide_update_features(image: MetadataImage, context: Context, command: AdminRequest) -> Decision:
    """Decide an UpdateFeatures request of the newest version: all updates or none."""
    request = command.request
    if not context.authorize(command.requester, "ALTER", "CLUSTER", "kafka-cluster"):
        return _answer(image, _Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "ALTER on the cluster is needed"))
    events: list[Event] = []
    seen: set[str] = set()
    for update in request.feature_updates:
        if update.feature in seen:
            return _answer(image, _Refusal(ErrorCode.INVALID_REQUEST, f"{update.feature} stands twice"))
        seen.add(update.feature)
        refusal = refuse_update(image, update.feature, update.max_version_level, update.upgrade_type)
        if refusal is not None:
            return _answer(image, refusal)
        if image.features.get(update.feature, 0) != update.max_version_level:
            release = RELEASE if update.feature == METADATA_VERSION_FEATURE else None
            events.append(FeatureLevel(update.feature, update.max_version_level, release))
    answer = _answer(image, None)
    if request.validate_only:
        return answer
    return Decision(events=tuple(events), reply=answer.reply, depends_on=image.offset)


def refuse_update(image: MetadataImage, name: str, level: int, upgrade_type: int) -> _Refusal | None:
    """Return why this feature may not be set to the requested level, or None."""
    reason = _reason_of_refusal(image, name, level, upgrade_type)
    if reason is None:
        return None
    return _Refusal(
        ErrorCode.INVALID_UPDATE_VERSION,
        "The update failed for all features since the following feature had an error: "
        f"Invalid update version {level} for feature {name}. {reason}",
    )


def _reason_of_refusal(image: MetadataImage, name: str, level: int, upgrade_type: int) -> str | None:
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"The controller does not support the given upgrade type. It is {upgrade_type}."
    if level < 0:
        return "A feature version cannot be less than 0."
    supported = next((feature for feature in SUPPORTED_FEATURES if feature.name == name), FeatureRange(name, 0, 0))
    for node, ranges in (("Local controller", (supported,)), *_registered_ranges(image)):
        found = next((feature for feature in ranges if feature.name == name), FeatureRange(name, 0, 0))
        if found.max_level == 0:
            return f"{node} does not support this feature."
        if not found.min_level <= level <= found.max_level:
            return f"{node} only supports versions {found.min_level}-{found.max_level}"
    if name == ELR_FEATURE and level == 0:
        return f"{name} cannot be turned off here: fast fencing depends on it."
    current = image.features.get(name, 0)
    if level < current and upgrade_type == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            f"downgrade. It is at version {current}."
        )
    if level > current and upgrade_type != UPGRADE:
        return f"Can't downgrade to a newer version. It is at version {current}."
    if level < current and upgrade_type == SAFE_DOWNGRADE and loses_metadata(name, current, level):
        return (
            "Refusing to perform the requested downgrade because it might delete metadata information: version "
            f"{level} cannot hold what version {current} wrote."
        )
    return None


def _registered_ranges(image: MetadataImage) -> list[tuple[str, tuple[FeatureRange, ...]]]:
    brokers = [(f"Broker {broker.broker_id}", broker.features) for broker in image.sorted_brokers()]
    controllers = [(f"Controller {node.controller_id}", node.features) for node in image.sorted_controllers()]
    return [*brokers, *controllers]


def loses_metadata(name: str, current: int, level: int) -> bool:
    """Return whether the log may hold event versions of the current level that cannot be written at the lower level."""
    if name != METADATA_VERSION_FEATURE:
        return False
    return any(level < since <= current and table for since, table in EVENT_VERSIONS_BY_METADATA_VERSION.items())


def _answer(image: MetadataImage, refusal: _Refusal | None) -> Decision:
    return Decision(reply=update_features_response(refusal), depends_on=image.offset)


def update_features_response(refusal: _Refusal | None) -> Any:
    """Return an UpdateFeaturesResponse of the newest version."""
    from datetime import timedelta

    from kio.schema.update_features.v2.response import UpdateFeaturesResponse

    return UpdateFeaturesResponse(
        throttle_time=timedelta(0),
        error_code=ErrorCode.NONE if refusal is None else refusal.code,
        error_message=None if refusal is None else refusal.message,
    )
