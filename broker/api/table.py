"""The table of a broker's APIs: API key → function that makes its handler. An API that is not in the table is neither
served nor advertised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

from kraft.broker.api.absent_features import (
    handle_create_acls,
    handle_delete_acls,
    handle_describe_acls,
    handle_sasl_authenticate,
    handle_sasl_handshake,
)
from kraft.broker.api.admin import (
    handle_add_raft_voter,
    handle_create_partitions,
    handle_create_topics,
    handle_delete_topics,
    handle_describe_quorum,
    handle_elect_leaders,
    handle_remove_raft_voter,
    handle_unregister_broker,
    handle_update_features,
)
from kraft.broker.api.alter_configs import handle_alter_configs, handle_incremental_alter_configs
from kraft.broker.api.alter_log_dirs import handle_alter_replica_log_dirs
from kraft.broker.api.api_versions import ApiVersionsHandler
from kraft.broker.api.context import Handler, HandlerContext
from kraft.broker.api.delete_records import handle_delete_records
from kraft.broker.api.describe_cluster import handle_describe_cluster
from kraft.broker.api.describe_configs import handle_describe_configs
from kraft.broker.api.describe_log_dirs import handle_describe_log_dirs
from kraft.broker.api.describe_producers import handle_describe_producers
from kraft.broker.api.describe_topic_partitions import handle_describe_topic_partitions
from kraft.broker.api.fetch.handle_fetch import FetchHandler
from kraft.broker.api.find_coordinator import handle_find_coordinator
from kraft.broker.api.forwarding import Forwarder
from kraft.broker.api.groups.consumer_groups import handle_consumer_group_describe, handle_consumer_group_heartbeat
from kraft.broker.api.groups.group_membership import (
    handle_heartbeat,
    handle_join_group,
    handle_leave_group,
    handle_sync_group,
)
from kraft.broker.api.groups.group_offsets import (
    handle_offset_commit,
    handle_offset_delete,
    handle_offset_fetch,
    handle_txn_offset_commit,
)
from kraft.broker.api.groups.groups_admin import handle_delete_groups, handle_describe_groups, handle_list_groups
from kraft.broker.api.groups.share_group_offsets import (
    handle_alter_share_group_offsets,
    handle_delete_share_group_offsets,
    handle_describe_share_group_offsets,
)
from kraft.broker.api.groups.share_groups import handle_share_group_describe, handle_share_group_heartbeat
from kraft.broker.api.identify import handle_identify
from kraft.broker.api.init_producer_id import handle_init_producer_id
from kraft.broker.api.list_config_resources import handle_list_config_resources
from kraft.broker.api.list_offsets import handle_list_offsets
from kraft.broker.api.metadata import handle_metadata
from kraft.broker.api.offset_for_leader_epoch import handle_offset_for_leader_epoch
from kraft.broker.api.produce.handle_produce import ProduceHandler
from kraft.broker.api.reassignments import handle_alter_reassignments, handle_list_reassignments
from kraft.broker.api.share_fetch.handle_share_fetch import handle_share_acknowledge, handle_share_fetch
from kraft.broker.api.share_state import handle_share_state
from kraft.broker.api.transactions import handle_add_offsets_to_txn, handle_add_partitions_to_txn, handle_end_txn
from kraft.broker.api.transactions_admin import handle_describe_transactions, handle_list_transactions
from kraft.broker.api.write_txn_markers import handle_write_txn_markers
from kraft.wire.api_keys import ApiKey
from kraft.wire.rpc import InternalKey
from kraft.wire.rpc.controller_messages import IdentifyResponse

if TYPE_CHECKING:
    from kraft.broker.serving.gates import Gates
    from kraft.broker.serving.session import Session
    from kraft.broker.serving.turns import Steps
    from kraft.image import FeatureRange
    from kraft.node.log_limit import LogLimit
    from kraft.wire.server import Request


@dataclass(frozen=True, slots=True)
class HandlerParts:
    """The parts from which the handlers of one broker are made. `features` are the features that this release
    supports."""

    context: HandlerContext
    produce: ProduceHandler
    fetch: FetchHandler
    forwarder: Forwarder
    incarnation_id: UUID
    features: tuple[FeatureRange, ...]


def make_handlers(parts: HandlerParts) -> dict[int, Handler]:
    """Return the handler of each API key, for one broker."""
    return {key: make(parts) for key, make in HANDLERS.items()}


def _with_context(
    handle: Callable[[HandlerContext, Request, Session], Steps | None],
) -> Callable[[HandlerParts], Handler]:
    return lambda parts: partial(handle, parts.context)


def _forwarding(handle: Callable[[Forwarder, Request, Session], None]) -> Callable[[HandlerParts], Handler]:
    return lambda parts: partial(handle, parts.forwarder)


def _refusing(handle: Callable[[Gates, LogLimit, Request, Session], None]) -> Callable[[HandlerParts], Handler]:
    return lambda parts: partial(handle, parts.context.gates, parts.context.log_limit)


def _altering_configs(parts: HandlerParts) -> Handler:
    return partial(handle_incremental_alter_configs, parts.context.node_id, parts.forwarder)


def _identifying(parts: HandlerParts) -> Handler:
    context = parts.context
    identity = IdentifyResponse(
        cluster_id=context.cluster_id, node_id=context.node_id, incarnation_id=parts.incarnation_id
    )
    return partial(handle_identify, identity)


HANDLERS: Mapping[int, Callable[[HandlerParts], Handler]] = MappingProxyType(
    {
        ApiKey.PRODUCE: lambda parts: parts.produce.handle,
        ApiKey.FETCH: lambda parts: parts.fetch.handle,
        ApiKey.LIST_OFFSETS: _with_context(handle_list_offsets),
        ApiKey.METADATA: _with_context(handle_metadata),
        ApiKey.OFFSET_COMMIT: _with_context(handle_offset_commit),
        ApiKey.OFFSET_FETCH: _with_context(handle_offset_fetch),
        ApiKey.FIND_COORDINATOR: _with_context(handle_find_coordinator),
        ApiKey.JOIN_GROUP: _with_context(handle_join_group),
        ApiKey.HEARTBEAT: _with_context(handle_heartbeat),
        ApiKey.LEAVE_GROUP: _with_context(handle_leave_group),
        ApiKey.SYNC_GROUP: _with_context(handle_sync_group),
        ApiKey.DESCRIBE_GROUPS: _with_context(handle_describe_groups),
        ApiKey.LIST_GROUPS: _with_context(handle_list_groups),
        ApiKey.SASL_HANDSHAKE: _refusing(handle_sasl_handshake),
        ApiKey.API_VERSIONS: lambda parts: ApiVersionsHandler(parts.context.newest_image, parts.features).handle,
        ApiKey.CREATE_TOPICS: _forwarding(handle_create_topics),
        ApiKey.DELETE_TOPICS: _forwarding(handle_delete_topics),
        ApiKey.DELETE_RECORDS: _with_context(handle_delete_records),
        ApiKey.INIT_PRODUCER_ID: _with_context(handle_init_producer_id),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _with_context(handle_offset_for_leader_epoch),
        ApiKey.ADD_PARTITIONS_TO_TXN: _with_context(handle_add_partitions_to_txn),
        ApiKey.ADD_OFFSETS_TO_TXN: _with_context(handle_add_offsets_to_txn),
        ApiKey.END_TXN: _with_context(handle_end_txn),
        ApiKey.WRITE_TXN_MARKERS: _with_context(handle_write_txn_markers),
        ApiKey.TXN_OFFSET_COMMIT: _with_context(handle_txn_offset_commit),
        ApiKey.DESCRIBE_ACLS: _refusing(handle_describe_acls),
        ApiKey.CREATE_ACLS: _refusing(handle_create_acls),
        ApiKey.DELETE_ACLS: _refusing(handle_delete_acls),
        ApiKey.DESCRIBE_CONFIGS: _with_context(handle_describe_configs),
        ApiKey.ALTER_CONFIGS: _forwarding(handle_alter_configs),
        ApiKey.ALTER_REPLICA_LOG_DIRS: _with_context(handle_alter_replica_log_dirs),
        ApiKey.DESCRIBE_LOG_DIRS: _with_context(handle_describe_log_dirs),
        ApiKey.SASL_AUTHENTICATE: _refusing(handle_sasl_authenticate),
        ApiKey.CREATE_PARTITIONS: _forwarding(handle_create_partitions),
        ApiKey.DELETE_GROUPS: _with_context(handle_delete_groups),
        ApiKey.ELECT_LEADERS: _forwarding(handle_elect_leaders),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _altering_configs,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _forwarding(handle_alter_reassignments),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _forwarding(handle_list_reassignments),
        ApiKey.OFFSET_DELETE: _with_context(handle_offset_delete),
        ApiKey.DESCRIBE_QUORUM: _forwarding(handle_describe_quorum),
        ApiKey.UPDATE_FEATURES: _forwarding(handle_update_features),
        ApiKey.DESCRIBE_CLUSTER: _with_context(handle_describe_cluster),
        ApiKey.DESCRIBE_PRODUCERS: _with_context(handle_describe_producers),
        ApiKey.UNREGISTER_BROKER: _forwarding(handle_unregister_broker),
        ApiKey.DESCRIBE_TRANSACTIONS: _with_context(handle_describe_transactions),
        ApiKey.LIST_TRANSACTIONS: _with_context(handle_list_transactions),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: _with_context(handle_consumer_group_heartbeat),
        ApiKey.CONSUMER_GROUP_DESCRIBE: _with_context(handle_consumer_group_describe),
        ApiKey.LIST_CONFIG_RESOURCES: _with_context(handle_list_config_resources),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _with_context(handle_describe_topic_partitions),
        ApiKey.SHARE_GROUP_HEARTBEAT: _with_context(handle_share_group_heartbeat),
        ApiKey.SHARE_GROUP_DESCRIBE: _with_context(handle_share_group_describe),
        ApiKey.SHARE_FETCH: _with_context(handle_share_fetch),
        ApiKey.SHARE_ACKNOWLEDGE: _with_context(handle_share_acknowledge),
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: _with_context(handle_share_state),
        ApiKey.READ_SHARE_GROUP_STATE: _with_context(handle_share_state),
        ApiKey.WRITE_SHARE_GROUP_STATE: _with_context(handle_share_state),
        ApiKey.DELETE_SHARE_GROUP_STATE: _with_context(handle_share_state),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _with_context(handle_share_state),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _with_context(handle_describe_share_group_offsets),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: _with_context(handle_alter_share_group_offsets),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: _with_context(handle_delete_share_group_offsets),
        ApiKey.ADD_RAFT_VOTER: _forwarding(handle_add_raft_voter),
        ApiKey.REMOVE_RAFT_VOTER: _forwarding(handle_remove_raft_voter),
        InternalKey.IDENTIFY: _identifying,
    }
)
