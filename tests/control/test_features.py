"""The controller's decisions about feature levels, controller registrations and blocks of producer ids."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.control import ActivateController, AllocateProducerIds, RegisterControllerCommand
from kraft.control.features import METADATA_VERSIONS, SUPPORTED_FEATURES, loses_metadata
from kraft.image import Endpoint, FeatureRange
from kraft.image.image import ELR_FEATURE, GROUP_FEATURE, METADATA_VERSION_FEATURE, SHARE_FEATURE, TRANSACTION_FEATURE
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.admin_requests import feature_update
from tests.stages.decided_cluster import CLUSTER_ID, Cluster
from tests.stages.tables import replace_row

NEWEST = max(METADATA_VERSIONS)
OLDEST = min(METADATA_VERSIONS)


def update(cluster: Cluster, *updates: tuple[str, int, int], validate_only: bool = False) -> int:
    response = cluster.admin(
        ApiKey.UPDATE_FEATURES,
        feature_updates=[feature_update(*one) for one in updates],
        validate_only=validate_only,
    )
    code: int = response.error_code
    return code


def test_empty_metadata_log_is_bootstrapped_only_once() -> None:
    cluster = Cluster()
    assert dict(cluster.image.features) == {
        METADATA_VERSION_FEATURE: NEWEST,
        ELR_FEATURE: 1,
        GROUP_FEATURE: 1,
        SHARE_FEATURE: 1,
        TRANSACTION_FEATURE: 2,
    }
    assert cluster.image.cluster_id == CLUSTER_ID
    assert cluster.decide(ActivateController()).events == ()


def test_metadata_version_decreases_only_by_a_downgrade() -> None:
    cluster = Cluster()
    assert update(cluster, (METADATA_VERSION_FEATURE, OLDEST, 1)) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(cluster, (METADATA_VERSION_FEATURE, OLDEST, 2)) == ErrorCode.NONE
    assert cluster.image.metadata_version == OLDEST
    assert update(cluster, (METADATA_VERSION_FEATURE, NEWEST, 1)) == ErrorCode.NONE
    assert cluster.image.metadata_version == NEWEST


def test_feature_level_must_be_supported_by_every_broker_and_controller() -> None:
    cluster = Cluster()
    update(cluster, (METADATA_VERSION_FEATURE, OLDEST, 2))
    cluster.add_broker(1)
    old = tuple(
        one._replace(max_level=OLDEST) if one.name == METADATA_VERSION_FEATURE else one for one in SUPPORTED_FEATURES
    )
    broker = cluster.image.brokers[1]
    cluster.apply([type(registered(cluster))(*broker._replace(features=old))])
    assert update(cluster, (METADATA_VERSION_FEATURE, NEWEST, 1)) == ErrorCode.INVALID_UPDATE_VERSION
    cluster.apply([type(registered(cluster))(*broker)])
    register_controller(cluster, 102, old)
    assert update(cluster, (METADATA_VERSION_FEATURE, NEWEST, 1)) == ErrorCode.INVALID_UPDATE_VERSION
    register_controller(cluster, 102, SUPPORTED_FEATURES)
    assert update(cluster, (METADATA_VERSION_FEATURE, NEWEST, 1)) == ErrorCode.NONE


def registered(cluster: Cluster) -> object:
    from kraft.image.events import RegisterBroker

    return RegisterBroker(*cluster.image.brokers[1])


def register_controller(cluster: Cluster, number: int, features: tuple[FeatureRange, ...]) -> object:
    return cluster.decide_all(
        RegisterControllerCommand(
            cluster_id=CLUSTER_ID,
            controller_id=number,
            incarnation_id=UUID(int=number),
            endpoints=(Endpoint("CONTROLLER", "localhost", 9192),),
            features=features,
        )
    )


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "code"),
    [
        ("no.such.feature", 1, 1, ErrorCode.INVALID_UPDATE_VERSION),
        (METADATA_VERSION_FEATURE, NEWEST + 1, 1, ErrorCode.INVALID_UPDATE_VERSION),
        (METADATA_VERSION_FEATURE, 0, 3, ErrorCode.INVALID_UPDATE_VERSION),
        (METADATA_VERSION_FEATURE, NEWEST, 9, ErrorCode.INVALID_UPDATE_VERSION),
        (ELR_FEATURE, 0, 3, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_invalid_feature_update_is_rejected(feature: str, level: int, upgrade_type: int, code: ErrorCode) -> None:
    assert update(Cluster(), (feature, level, upgrade_type)) == code


def test_group_version_may_be_lowered_and_raised_again() -> None:
    cluster = Cluster()
    assert update(cluster, (GROUP_FEATURE, 2, 1)) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(cluster, (GROUP_FEATURE, 0, 1)) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(cluster, (GROUP_FEATURE, 0, 2)) == ErrorCode.NONE
    assert cluster.image.features.get(GROUP_FEATURE, 0) == 0
    assert update(cluster, (GROUP_FEATURE, 1, 1)) == ErrorCode.NONE
    assert cluster.image.features[GROUP_FEATURE] == 1


def test_update_features_applies_all_updates_of_a_request_or_none() -> None:
    cluster = Cluster()
    both = ((METADATA_VERSION_FEATURE, OLDEST, 2), ("no.such.feature", 1, 1))
    assert update(cluster, *both) == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.image.metadata_version == NEWEST


def test_feature_update_with_validate_only_writes_nothing() -> None:
    cluster = Cluster()
    assert update(cluster, (METADATA_VERSION_FEATURE, OLDEST, 2), validate_only=True) == ErrorCode.NONE
    assert cluster.image.metadata_version == NEWEST


def test_feature_downgrade_loses_metadata_only_if_event_versions_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    from kraft.image.events import EVENT_VERSIONS_BY_METADATA_VERSION

    assert not loses_metadata(METADATA_VERSION_FEATURE, NEWEST, OLDEST)
    replace_row(monkeypatch, EVENT_VERSIONS_BY_METADATA_VERSION, NEWEST, {3: 1})
    assert loses_metadata(METADATA_VERSION_FEATURE, NEWEST, OLDEST)
    cluster = Cluster()
    assert update(cluster, (METADATA_VERSION_FEATURE, OLDEST, 2)) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(cluster, (METADATA_VERSION_FEATURE, OLDEST, 3)) == ErrorCode.NONE


def test_unchanged_controller_registration_is_recorded_once() -> None:
    cluster = Cluster()
    register_controller(cluster, 102, SUPPORTED_FEATURES)
    offset = cluster.image.offset
    register_controller(cluster, 102, SUPPORTED_FEATURES)
    assert cluster.image.offset == offset
    assert cluster.image.controllers[102].endpoints[0].port == 9192


def test_controller_of_another_cluster_or_of_an_old_release_is_rejected() -> None:
    cluster = Cluster()
    foreign = RegisterControllerCommand(
        cluster_id="other", controller_id=1, incarnation_id=UUID(int=1), endpoints=(), features=SUPPORTED_FEATURES
    )
    assert cluster.decide_all(foreign).error_code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert register_controller(cluster, 102, ()).error_code is ErrorCode.UNSUPPORTED_VERSION  # type: ignore[attr-defined]


def test_each_block_of_producer_ids_is_allocated_once() -> None:
    cluster = Cluster()
    epoch = cluster.add_broker(1)
    blocks = [
        cluster.decide_all(AllocateProducerIds(broker_id=1, broker_epoch=epoch)).first_producer_id for _ in range(3)
    ]
    assert blocks == [0, 1_000, 2_000]
    assert cluster.image.next_producer_id == 3_000


def test_producer_id_request_with_a_stale_broker_epoch_is_rejected() -> None:
    cluster = Cluster()
    epoch = cluster.add_broker(1)
    reply = cluster.decide_all(AllocateProducerIds(broker_id=1, broker_epoch=epoch + 1))
    assert (reply.error_code, reply.count) == (ErrorCode.STALE_BROKER_EPOCH, 0)


def test_update_features_without_permission_or_with_a_feature_named_twice_is_rejected() -> None:
    cluster = Cluster()
    twice = (METADATA_VERSION_FEATURE, OLDEST, 2)
    assert update(cluster, twice, twice) == ErrorCode.INVALID_REQUEST
    cluster.authorize = lambda *_: False
    assert update(cluster, twice) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_producer_id_allocation_fails_at_the_largest_id_instead_of_wrapping_around() -> None:
    from kraft.control.producer_ids import PRODUCER_ID_MAX
    from kraft.image.events import ProducerIds

    cluster = Cluster()
    epoch = cluster.add_broker(1)
    cluster.apply([ProducerIds(1, epoch, PRODUCER_ID_MAX - 10)])
    reply = cluster.decide_all(AllocateProducerIds(broker_id=1, broker_epoch=epoch))
    assert (reply.error_code, reply.count) == (ErrorCode.UNKNOWN_SERVER_ERROR, 0)
