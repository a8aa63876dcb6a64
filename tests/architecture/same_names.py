"""Classes of the product that have the same name in different folders.

`python -m tests.architecture.same_names` prints them. A name that the field itself uses for several things, or an
interface and its implementations, may stay: `ALLOWED` says why.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.architecture.rooms import ROOT, source_files

ALLOWED: Mapping[str, str] = MappingProxyType(
    {
        "Acknowledgement": "a report about records: as a broker reads it, and its kind in the client",
        "BrokerRow": "a row of a table of brokers: one for Spark, one for the console",
        "ClusterUnreachable": "the same error of the client and of Spark's blocking client",
        "ConfigError": "an invalid setting: of a node, or of a client",
        "ConfigRow": "a row of a table of settings: one for Spark, one for the console",
        "ConsumerGroup": "a group as its coordinator has it, and in the workload of the simulator",
        "Delivery": "the delivery of records by a producer, and of committed entries to listeners",
        "Endpoint": "an address of a node: in the metadata, and as the admin client returns it",
        "Event": "an event of the metadata log, and trio's event",
        "Fault": "a fault of a plan: of the simulator's own, and of a user's",
        "LeaderState": "the state of a partition's leader: in the broker, and in a picture of a run",
        "LinkPolicy": "what happens to a link's bytes: at the seam, and as the kraft command sets it",
        "MemberState": "Kafka's word: the state of a member as the coordinator stores it, and as the member knows it",
        "Partition": "Kafka's word for the hosted replica, and for the event that creates a partition",
        "PartitionRow": "a row of a table of partitions: one for Spark, one for the console",
        "ProducerIds": "Kafka's word for a block of ids: the broker's supply, and the event that allocates it",
        "QuorumDescription": "the quorum as a node describes it, and as the admin client returns it",
        "QuorumState": "the content of Kafka's file quorum-state; raft does not import storage",
        "ResourceType": "Kafka's word: of ACLs in the broker, of configurations in the admin client",
        "ShareSession": "Kafka's word: a share session as the broker keeps it, and as the member knows it",
        "SnapshotId": "the id of a metadata snapshot (KIP-630); raft does not import storage",
        "TopicRow": "a row of a table of topics: one for Spark, one for the console",
        "Transaction": "Kafka's word: of a transactional id in the coordinator, and of Spark's sink",
        "VersionMismatch": "the same error of the client and of Spark's blocking client",
    }
)


def same_names() -> dict[str, list[Path]]:
    """Return a map from each class name that several files define to these files."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in source_files():
        for node in ast.parse((ROOT / path).read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path)
    return {name: paths for name, paths in sorted(found.items()) if len(paths) > 1}


if __name__ == "__main__":
    for name, paths in same_names().items():
        print(f"{name:28} {ALLOWED.get(name, '')}\n    {' '.join(map(str, paths))}")
