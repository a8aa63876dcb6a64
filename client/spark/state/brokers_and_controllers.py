"""Async: the tables `brokers` and `controllers`.

If a broker does not respond, only its size in bytes is NULL; the other columns do not depend on its response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType

from kraft.client.admin import BrokerDescription, Endpoint, QuorumDescription, QuorumReplica
from kraft.client.spark.state.cells import id_text, known, time_of
from kraft.client.spark.state.table_query import Family, TableQuery
from kraft.wire.api_keys import ApiKey

VERSION_WITH_FENCED = 2
"""The first version of DescribeCluster that reports fenced brokers."""


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker, and its numbers of leaders and replicas."""

    broker: BrokerDescription
    is_fenced: bool | None
    leaders: int
    replicas: int
    preferred_leaders: int
    size_bytes: int | None


async def request_brokers(query: TableQuery) -> list[BrokerRow]:
    """Return all registered brokers."""
    wanted = query.bounds.values("broker_id")
    cluster = await query.admin.nodes.cluster()
    brokers = [one for one in cluster.brokers if wanted is None or one.node_id in wanted]
    leaders, replicas, preferred = await _count(query)
    sizes = await _sizes(query, [one.node_id for one in brokers if not one.is_fenced])
    tells_fenced = query.answers(ApiKey.DESCRIBE_CLUSTER, VERSION_WITH_FENCED)
    return [
        BrokerRow(
            one,
            one.is_fenced if tells_fenced else None,
            leaders[one.node_id],
            replicas[one.node_id],
            preferred[one.node_id],
            sizes.get(one.node_id),
        )
        for one in brokers
    ]


async def _count(query: TableQuery) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """Count the partitions that each broker leads, has as replicas, or should lead as preferred leader."""
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    preferred: Counter[int] = Counter()
    if query.reads("leaders", "replicas", "preferred_leaders"):
        for topic in await query.admin.topics.list():
            for part in topic.partitions:
                replicas.update(part.replicas)
                preferred.update(part.replicas[:1])
                if part.leader is not None:
                    leaders[part.leader] += 1
    return leaders, replicas, preferred


async def _sizes(query: TableQuery, brokers: Iterable[int]) -> dict[int, int]:
    """Return the bytes in the log directories of each broker that responds, by broker id."""
    if not query.reads("size_bytes"):
        return {}
    nodes = query.admin.nodes
    outcomes = await query.each("broker", brokers, lambda broker: nodes.log_dirs([broker]))
    return {
        broker: sum(each.size_bytes for each in dirs)
        for broker, dirs in outcomes.items()
        if not isinstance(dirs, Exception)
    }


@dataclass(frozen=True, slots=True)
class ControllerRow:
    """A voter or observer of the controller quorum, and the quorum."""

    replica: QuorumReplica
    role: str
    quorum: QuorumDescription

    @property
    def is_leader(self) -> bool:
        return self.replica.node_id == self.quorum.leader

    @property
    def lag(self) -> int | None:
        """Number of offsets behind the leader; None if the quorum has no leader, or the leader does not report this
        voter or observer."""
        if self.quorum.leader is None or self.replica.log_end_offset < 0:
            return None
        return self.quorum.log_end_offset - self.replica.log_end_offset


async def request_controllers(query: TableQuery) -> list[ControllerRow]:
    """Return the quorum's voters, then its observers."""
    quorum = await query.admin.nodes.quorum()
    return [
        *(ControllerRow(replica, "voter", quorum) for replica in quorum.voters),
        *(ControllerRow(replica, "observer", quorum) for replica in quorum.observers),
    ]


def endpoint_structs(endpoints: Iterable[Endpoint]) -> list[tuple[str, str, int, str | None]]:
    """Return endpoints as ARRAY<STRUCT<name, host, port, security_protocol>>. The protocol is NULL, because
    DescribeQuorum does not report it."""
    return [(one.name, one.address.host, one.address.port, None) for one in endpoints]


def _endpoints(row: ControllerRow) -> list[tuple[str, str, int, str | None]] | None:
    known_ones: Mapping[int, tuple[Endpoint, ...]] = row.quorum.endpoints
    found = known_ones.get(row.replica.node_id) if row.role == "voter" else None
    return None if found is None else endpoint_structs(found)


FAMILIES = MappingProxyType(
    {
        "brokers": Family(
            {
                "broker_id": attrgetter("broker.node_id"),
                "host": attrgetter("broker.address.host"),
                "port": attrgetter("broker.address.port"),
                "rack": attrgetter("broker.rack"),
                "is_fenced": attrgetter("is_fenced"),
                "leaders": attrgetter("leaders"),
                "replicas": attrgetter("replicas"),
                "preferred_leaders": attrgetter("preferred_leaders"),
                "size_bytes": attrgetter("size_bytes"),
            },
            request_brokers,
            lambda row: (row.broker.node_id,),
        ),
        "controllers": Family(
            {
                "node_id": attrgetter("replica.node_id"),
                "role": attrgetter("role"),
                "is_leader": attrgetter("is_leader"),
                "leader_epoch": attrgetter("quorum.leader_epoch"),
                "directory_id": lambda row: id_text(row.replica.directory_id),
                "log_end_offset": lambda row: known(row.replica.log_end_offset),
                "lag": attrgetter("lag"),
                "last_fetch": lambda row: time_of(row.replica.last_fetch_ms),
                "last_caught_up": lambda row: time_of(row.replica.last_caught_up_ms),
                "high_watermark": lambda row: known(row.quorum.high_watermark),
                "endpoints": _endpoints,
            },
            request_controllers,
        ),
    }
)
