"""Async: the admin client on trio, over the seam.

    async with Admin(bootstrap_servers="localhost:9092") as admin:
        await admin.topics.create(NewTopic("orders", partitions=3, replication_factor=3))
        for group in await admin.groups.list():
            print(group.group_id, group.state)

Its operations are grouped in eight attributes: `topics`, `partitions`, `configs`, `groups`, `share_groups`, `nodes`,
`transactions` and `access`. May import everything below kraft.client, never kraft.broker.
"""

from kraft.client.admin.access import Acl, AclResource, Quota, ScramUser
from kraft.client.admin.admin import Admin
from kraft.client.admin.partitions import EARLIEST, LATEST, MAX_TIMESTAMP
from kraft.client.admin.transactions import AbortMarker, TransactionDescription, TransactionListing
from kraft.client.admin.values import (
    BrokerDescription,
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    CreatedTopic,
    ElectionType,
    Endpoint,
    Feature,
    FeatureChange,
    FoundOffset,
    GroupDescription,
    GroupListing,
    GroupMember,
    LogDir,
    LogDirReplica,
    NewTopic,
    PartitionDescription,
    ProducerState,
    QuorumDescription,
    QuorumReplica,
    Reassignment,
    ResourceType,
    ShareOffset,
    TopicDescription,
)
from kraft.client.core.records import CommittedOffset

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AbortMarker",
    "Acl",
    "AclResource",
    "Admin",
    "BrokerDescription",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "CreatedTopic",
    "ElectionType",
    "Endpoint",
    "Feature",
    "FeatureChange",
    "FoundOffset",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "LogDir",
    "LogDirReplica",
    "NewTopic",
    "PartitionDescription",
    "ProducerState",
    "QuorumDescription",
    "QuorumReplica",
    "Quota",
    "Reassignment",
    "ResourceType",
    "ScramUser",
    "ShareOffset",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
]
