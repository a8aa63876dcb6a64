"""decide(image, context, command) -> Decision: the table of all commands.

Pure: same arguments, same decision. The caller appends the events as one batch, replays them at once into its
speculative image, and sends the reply when the high watermark allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from kraft.control import commands
from kraft.control.brokers.assign_directories import decide_assign_directories
from kraft.control.brokers.directories import decide_offline_directories
from kraft.control.brokers.fencing import decide_fence
from kraft.control.brokers.heartbeats import decide_elect_leaderless, decide_heartbeat, decide_shut_down
from kraft.control.brokers.registration import decide_register_broker, decide_unregister
from kraft.control.brokers.unregister import decide_unregister_broker
from kraft.control.configs.incremental import decide_incremental_alter_configs
from kraft.control.configs.legacy import decide_alter_configs
from kraft.control.controllers import decide_activate, decide_register_controller
from kraft.control.decision import Context, Decision
from kraft.control.features import decide_update_features
from kraft.control.partitions.elections import decide_elect_leaders, decide_rebalance
from kraft.control.partitions.isr import decide_alter_partition
from kraft.control.partitions.reassignments import (
    decide_alter_reassignments,
    decide_list_reassignments,
    decide_reassignments_slice,
)
from kraft.control.producer_ids import decide_allocate_producer_ids
from kraft.control.topics.create_delete import decide_create_topics, decide_create_topics_slice, decide_delete_topics
from kraft.control.topics.grow import decide_create_partitions, decide_create_partitions_slice
from kraft.image import MetadataImage
from kraft.wire.api_keys import ApiKey

Decide = Callable[[MetadataImage, Context, Any], Decision]

ADMIN: Mapping[int, Decide] = MappingProxyType(
    {
        ApiKey.CREATE_TOPICS: decide_create_topics,
        ApiKey.DELETE_TOPICS: decide_delete_topics,
        ApiKey.CREATE_PARTITIONS: decide_create_partitions,
        ApiKey.ALTER_CONFIGS: decide_alter_configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: decide_incremental_alter_configs,
        ApiKey.ELECT_LEADERS: decide_elect_leaders,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: decide_alter_reassignments,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: decide_list_reassignments,
        ApiKey.UPDATE_FEATURES: decide_update_features,
        ApiKey.UNREGISTER_BROKER: decide_unregister_broker,
    }
)
"""API key → handler of client requests to the active controller, sent directly or forwarded by a broker."""


def decide_admin(image: MetadataImage, context: Context, command: commands.AdminRequest) -> Decision:
    """Decide a client's request by its API key."""
    return ADMIN[command.api_key](image, context, command)


COMMANDS: Mapping[type, Decide] = MappingProxyType(
    {
        commands.RegisterBrokerCommand: decide_register_broker,
        commands.BrokerHeartbeat: decide_heartbeat,
        commands.FenceBrokers: decide_fence,
        commands.ShutDownBroker: decide_shut_down,
        commands.HandleOfflineDirectories: decide_offline_directories,
        commands.UnregisterBrokerCommand: decide_unregister,
        commands.ElectLeaderless: decide_elect_leaderless,
        commands.RebalanceLeaders: decide_rebalance,
        commands.AlterPartition: decide_alter_partition,
        commands.AssignReplicasToDirs: decide_assign_directories,
        commands.AllocateProducerIds: decide_allocate_producer_ids,
        commands.RegisterControllerCommand: decide_register_controller,
        commands.ActivateController: decide_activate,
        commands.AdminRequest: decide_admin,
        commands.CreateTopicsSlice: decide_create_topics_slice,
        commands.CreatePartitionsSlice: decide_create_partitions_slice,
        commands.ReassignmentsSlice: decide_reassignments_slice,
    }
)


def decide(image: MetadataImage, context: Context, command: Any) -> Decision:
    """Return the decision for this command on this image in this context. Raises KeyError for an unknown command."""
    return COMMANDS[type(command)](image, context, command)
