"""The cluster itself: its brokers, metadata quorum, log directories and features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from kraft.client.admin.routing import Router, by_topic, explain, require_success
from kraft.client.admin.values import (
    BrokerDescription,
    ClusterDescription,
    Endpoint,
    Feature,
    FeatureChange,
    LogDir,
    LogDirReplica,
    QuorumDescription,
    QuorumReplica,
)
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.seam import Address
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

METADATA_TOPIC = "__cluster_metadata"
CONTROLLER_LISTENER = "CONTROLLER"
_SOFTWARE = MappingProxyType({"client_software_name": "pykraft", "client_software_version": "1"})


class Nodes:
    """Describe and change the nodes of a cluster."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def cluster(self) -> ClusterDescription:
        """Return the cluster with its brokers, including fenced ones if the cluster reports them."""
        answer = await self._router.ask_any(ApiKey.DESCRIBE_CLUSTER, include_fenced_brokers=True)
        require_success(answer, "the cluster")
        brokers = tuple(
            BrokerDescription(int(told.broker_id), Address(told.host, int(told.port)), told.rack, bool(told.is_fenced))
            for told in sorted(answer.brokers, key=lambda told: int(told.broker_id))
        )
        controller = int(answer.controller_id)
        return ClusterDescription(str(answer.cluster_id), controller if controller >= 0 else None, brokers)

    async def quorum(self) -> QuorumDescription:
        """Return the metadata quorum: leader, epoch, and the log end offset of each voter and observer."""
        topics = ({"topic_name": METADATA_TOPIC, "partitions": ({"partition_index": 0},)},)
        answer = await self._router.ask_controller(ApiKey.DESCRIBE_QUORUM, lambda told: told.error_code, topics=topics)
        require_success(answer, "the quorum")
        partition = answer.topics[0].partitions[0]
        require_success(partition, "the quorum")
        leader = int(partition.leader_id)
        return QuorumDescription(
            leader if leader >= 0 else None,
            int(partition.leader_epoch),
            int(partition.high_watermark),
            _read_replicas(partition.current_voters),
            _read_replicas(partition.observers),
            {
                int(node.node_id): tuple(
                    Endpoint(str(one.name), Address(one.host, int(one.port))) for one in node.listeners
                )
                for node in answer.nodes
            },
        )

    async def add_voter(
        self, node_id: int, directory_id: UUID, address: Address, *, listener: str = CONTROLLER_LISTENER
    ) -> None:
        """Make an observer of the quorum a voter. It must be a controller that has caught up. Other controllers connect
        to it at `address`, on the controller `listener`."""
        answer = await self._router.change(
            ApiKey.ADD_RAFT_VOTER,
            lambda told: told.error_code,
            cluster_id=None,
            voter_id=node_id,
            voter_directory_id=directory_id,
            listeners=({"name": listener, "host": address.host, "port": address.port},),
            timeout=self._router.change_timeout_ms,
        )
        require_success(answer, f"voter {node_id}")

    async def remove_voter(self, node_id: int, directory_id: UUID) -> None:
        """Remove a voter from the quorum. The voter need not be running."""
        answer = await self._router.change(
            ApiKey.REMOVE_RAFT_VOTER,
            lambda told: told.error_code,
            cluster_id=None,
            voter_id=node_id,
            voter_directory_id=directory_id,
        )
        require_success(answer, f"voter {node_id}")

    async def log_dirs(
        self, brokers: Iterable[int] | None = None, *, partitions: Iterable[TopicPartition] | None = None
    ) -> tuple[LogDir, ...]:
        """Return the log directories of these brokers (None: of all brokers) with their replicas. If `partitions` are
        given, only replicas of these are included."""
        topics = None
        if partitions is not None:
            topics = [{"topic": topic, "partitions": indexes} for topic, indexes in by_topic(partitions).items()]
        answers = await self._router.ask_each(
            ApiKey.DESCRIBE_LOG_DIRS, lambda told: told.error_code, brokers, topics=topics
        )
        found = []
        for broker, answer in answers.items():
            require_success(answer, f"the log directories of broker {broker}")
            found += [_read_log_dir(broker, told) for told in answer.results]
        return tuple(sorted(found, key=lambda one: (one.broker, one.path)))

    async def move_replicas(
        self, broker: int, paths: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Start moving replicas of one broker to other log directories of that broker. Naming the directory where a
        replica is now cancels its move. Return the result of each request. `log_dirs` shows the progress. The result
        REPLICA_NOT_AVAILABLE means that the replica is not on this broker yet; it will be created in the given
        directory."""
        by_path: dict[str, list[TopicPartition]] = {}
        for partition, path in sorted(paths.items()):
            by_path.setdefault(path, []).append(partition)
        dirs = [
            {
                "path": path,
                "topics": [{"name": topic, "partitions": indexes} for topic, indexes in by_topic(moved).items()],
            }
            for path, moved in by_path.items()
        ]
        answer = await self._router.ask_node(
            broker, ApiKey.ALTER_REPLICA_LOG_DIRS, lambda told: ErrorCode.NONE, dirs=dirs
        )
        found: dict[TopicPartition, KafkaError | None] = {}
        for topic in answer.results:
            for part in topic.partitions:
                code = ErrorCode.of(int(part.error_code))
                name = f"{topic.topic_name}-{part.partition_index}: {explain(code)}"
                problem = None if code is ErrorCode.NONE else KafkaError(code, name)
                found[str(topic.topic_name), int(part.partition_index)] = problem
        return found

    async def api_versions(self, broker: int | None = None) -> dict[int, tuple[int, int]]:
        """Return the lowest and highest version of each API, by its key, that this broker supports. If `broker` is
        None, ask any broker."""
        if broker is None:
            answer = await self._router.ask_any(ApiKey.API_VERSIONS, **_SOFTWARE)
        else:
            answer = await self._router.ask_node(broker, ApiKey.API_VERSIONS, lambda told: told.error_code, **_SOFTWARE)
        require_success(answer, "the versions")
        return {int(told.api_key): (int(told.min_version), int(told.max_version)) for told in answer.api_keys}

    async def features(self, broker: int | None = None) -> tuple[Feature, ...]:
        """Return the features that the cluster supports, by name, as this broker reports them. If `broker` is None, ask
        any broker."""
        if broker is None:
            answer = await self._router.ask_any(ApiKey.API_VERSIONS, **_SOFTWARE)
        else:
            answer = await self._router.ask_node(broker, ApiKey.API_VERSIONS, lambda told: told.error_code, **_SOFTWARE)
        require_success(answer, "the features")
        epoch = _known(answer.finalized_features_epoch)
        levels = {str(told.name): int(told.max_version_level) for told in answer.finalized_features}
        ranges = {str(told.name): (int(told.min_version), int(told.max_version)) for told in answer.supported_features}
        return tuple(
            Feature(name, levels.get(name), *ranges.get(name, (levels.get(name, 0), levels.get(name, 0))), epoch)
            for name in sorted(ranges.keys() | levels.keys())
        )

    async def update_features(
        self, levels: Mapping[str, int], *, change: FeatureChange = FeatureChange.UPGRADE, validate_only: bool = False
    ) -> None:
        """Change the finalized levels of features: all of them, or none if one is rejected. Level 0 turns a feature
        off."""
        updates = [
            {"feature": name, "max_version_level": level, "upgrade_type": int(change)}
            for name, level in sorted(levels.items())
        ]
        answer = await self._router.change(
            ApiKey.UPDATE_FEATURES,
            lambda told: told.error_code,
            timeout=self._router.change_timeout_ms,
            feature_updates=updates,
            validate_only=validate_only,
        )
        require_success(answer, ", ".join(sorted(levels)))

    async def unregister_broker(self, broker: int) -> None:
        """Unregister a broker that will not come back."""
        answer = await self._router.change(ApiKey.UNREGISTER_BROKER, lambda told: told.error_code, broker_id=broker)
        require_success(answer, f"broker {broker}")


def _read_replicas(told: Any) -> tuple[QuorumReplica, ...]:
    return tuple(
        QuorumReplica(
            int(replica.replica_id),
            replica.replica_directory_id,
            int(replica.log_end_offset),
            _known(replica.last_fetch_timestamp),
            _known(replica.last_caught_up_timestamp),
        )
        for replica in sorted(told, key=lambda replica: int(replica.replica_id))
    )


def _known(value: int) -> int | None:
    return int(value) if value >= 0 else None


def _read_log_dir(broker: int, told: Any) -> LogDir:
    code = ErrorCode.of(int(told.error_code))
    replicas = tuple(
        LogDirReplica(
            str(topic.name),
            int(part.partition_index),
            int(part.partition_size),
            int(part.offset_lag),
            bool(part.is_future_key),
        )
        for topic in sorted(told.topics, key=lambda topic: str(topic.name))
        for part in sorted(topic.partitions, key=lambda part: int(part.partition_index))
    )
    return LogDir(
        broker,
        str(told.log_dir),
        None if code is ErrorCode.NONE else code.name,
        _known(told.total_bytes),
        _known(told.usable_bytes),
        replicas,
    )
