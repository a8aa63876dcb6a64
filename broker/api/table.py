"""The table of this broker's APIs: key → handler. What is not here is not served, and not advertised."""

from __future__ import annotations

from collections.abc import Mapping

from kraft.broker.api.admin import (
    handle_create_partitions,
    handle_create_topics,
    handle_delete_topics,
    handle_describe_quorum,
    handle_elect_leaders,
)
from kraft.broker.api.alter_configs import handle_incremental_alter_configs
from kraft.broker.api.api_versions import handle_api_versions
from kraft.broker.api.delete_records import handle_delete_records
from kraft.broker.api.describe_cluster import handle_describe_cluster
from kraft.broker.api.describe_configs import handle_describe_configs
from kraft.broker.api.fetch import handle_fetch
from kraft.broker.api.identify import handle_identify
from kraft.broker.api.init_producer_id import handle_init_producer_id
from kraft.broker.api.list_offsets import handle_list_offsets
from kraft.broker.api.metadata import handle_metadata
from kraft.broker.api.offset_for_leader_epoch import handle_offset_for_leader_epoch
from kraft.broker.api.produce import handle_produce
from kraft.broker.node.dispatch import Handler
from kraft.wire.api_keys import ApiKey
from kraft.wire.rpc import InternalKey

HANDLERS: Mapping[int, Handler] = {
    ApiKey.PRODUCE: handle_produce,
    ApiKey.FETCH: handle_fetch,
    ApiKey.LIST_OFFSETS: handle_list_offsets,
    ApiKey.METADATA: handle_metadata,
    ApiKey.API_VERSIONS: handle_api_versions,
    ApiKey.CREATE_TOPICS: handle_create_topics,
    ApiKey.DELETE_TOPICS: handle_delete_topics,
    ApiKey.DELETE_RECORDS: handle_delete_records,
    ApiKey.INIT_PRODUCER_ID: handle_init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: handle_offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: handle_describe_configs,
    ApiKey.CREATE_PARTITIONS: handle_create_partitions,
    ApiKey.ELECT_LEADERS: handle_elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: handle_incremental_alter_configs,
    ApiKey.DESCRIBE_QUORUM: handle_describe_quorum,
    ApiKey.DESCRIBE_CLUSTER: handle_describe_cluster,
    InternalKey.IDENTIFY: handle_identify,
}
