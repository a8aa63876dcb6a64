"""The table of this broker's APIs: key → handler. What is not here is not served, and not advertised."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kraft.broker.api.absent_features import (
    handle_consumer_group_heartbeat,
    handle_create_acls,
    handle_delete_acls,
    handle_describe_acls,
    handle_describe_transactions,
    handle_list_transactions,
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
from kraft.broker.api.api_versions import handle_api_versions
from kraft.broker.api.delete_records import handle_delete_records
from kraft.broker.api.describe_cluster import handle_describe_cluster
from kraft.broker.api.describe_configs import handle_describe_configs
from kraft.broker.api.describe_log_dirs import handle_describe_log_dirs
from kraft.broker.api.describe_producers import handle_describe_producers
from kraft.broker.api.describe_topic_partitions import handle_describe_topic_partitions
from kraft.broker.api.fetch.handle_fetch import handle_fetch
from kraft.broker.api.find_coordinator import handle_find_coordinator
from kraft.broker.api.group_membership import (
    handle_heartbeat,
    handle_join_group,
    handle_leave_group,
    handle_sync_group,
)
from kraft.broker.api.group_offsets import handle_offset_commit, handle_offset_delete, handle_offset_fetch
from kraft.broker.api.groups_admin import handle_delete_groups, handle_describe_groups, handle_list_groups
from kraft.broker.api.identify import handle_identify
from kraft.broker.api.init_producer_id import handle_init_producer_id
from kraft.broker.api.list_config_resources import handle_list_config_resources
from kraft.broker.api.list_offsets import handle_list_offsets
from kraft.broker.api.metadata import handle_metadata
from kraft.broker.api.offset_for_leader_epoch import handle_offset_for_leader_epoch
from kraft.broker.api.produce.handle_produce import handle_produce
from kraft.broker.api.reassignments import handle_alter_reassignments, handle_list_reassignments
from kraft.broker.node.dispatch import Handler
from kraft.wire.api_keys import ApiKey
from kraft.wire.rpc import InternalKey

HANDLERS: Mapping[int, Handler] = MappingProxyType(
    {
        ApiKey.PRODUCE: handle_produce,
        ApiKey.FETCH: handle_fetch,
        ApiKey.LIST_OFFSETS: handle_list_offsets,
        ApiKey.METADATA: handle_metadata,
        ApiKey.OFFSET_COMMIT: handle_offset_commit,
        ApiKey.OFFSET_FETCH: handle_offset_fetch,
        ApiKey.FIND_COORDINATOR: handle_find_coordinator,
        ApiKey.JOIN_GROUP: handle_join_group,
        ApiKey.HEARTBEAT: handle_heartbeat,
        ApiKey.LEAVE_GROUP: handle_leave_group,
        ApiKey.SYNC_GROUP: handle_sync_group,
        ApiKey.DESCRIBE_GROUPS: handle_describe_groups,
        ApiKey.LIST_GROUPS: handle_list_groups,
        ApiKey.SASL_HANDSHAKE: handle_sasl_handshake,
        ApiKey.API_VERSIONS: handle_api_versions,
        ApiKey.CREATE_TOPICS: handle_create_topics,
        ApiKey.DELETE_TOPICS: handle_delete_topics,
        ApiKey.DELETE_RECORDS: handle_delete_records,
        ApiKey.INIT_PRODUCER_ID: handle_init_producer_id,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: handle_offset_for_leader_epoch,
        ApiKey.DESCRIBE_ACLS: handle_describe_acls,
        ApiKey.CREATE_ACLS: handle_create_acls,
        ApiKey.DELETE_ACLS: handle_delete_acls,
        ApiKey.DESCRIBE_CONFIGS: handle_describe_configs,
        ApiKey.ALTER_CONFIGS: handle_alter_configs,
        ApiKey.ALTER_REPLICA_LOG_DIRS: handle_alter_replica_log_dirs,
        ApiKey.DESCRIBE_LOG_DIRS: handle_describe_log_dirs,
        ApiKey.SASL_AUTHENTICATE: handle_sasl_authenticate,
        ApiKey.CREATE_PARTITIONS: handle_create_partitions,
        ApiKey.DELETE_GROUPS: handle_delete_groups,
        ApiKey.ELECT_LEADERS: handle_elect_leaders,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: handle_incremental_alter_configs,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: handle_alter_reassignments,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: handle_list_reassignments,
        ApiKey.OFFSET_DELETE: handle_offset_delete,
        ApiKey.DESCRIBE_QUORUM: handle_describe_quorum,
        ApiKey.UPDATE_FEATURES: handle_update_features,
        ApiKey.DESCRIBE_CLUSTER: handle_describe_cluster,
        ApiKey.DESCRIBE_PRODUCERS: handle_describe_producers,
        ApiKey.UNREGISTER_BROKER: handle_unregister_broker,
        ApiKey.DESCRIBE_TRANSACTIONS: handle_describe_transactions,
        ApiKey.LIST_TRANSACTIONS: handle_list_transactions,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: handle_consumer_group_heartbeat,
        ApiKey.LIST_CONFIG_RESOURCES: handle_list_config_resources,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: handle_describe_topic_partitions,
        ApiKey.ADD_RAFT_VOTER: handle_add_raft_voter,
        ApiKey.REMOVE_RAFT_VOTER: handle_remove_raft_voter,
        InternalKey.IDENTIFY: handle_identify,
    }
)
