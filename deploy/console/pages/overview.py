"""The first page: alarms, key figures, brokers and the metadata quorum."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kraft.deploy.console.rendering import ago, counted, render, view_of
from kraft.deploy.console.snapshot import ClusterSnapshot, assigned_brokers

SECTION = "Overview"


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker and the counts of its partitions. A broker that is not registered has no address."""

    node_id: int
    address: str | None
    rack: str | None
    state: str
    leaders: int
    replicas: int


@dataclass(frozen=True, slots=True)
class QuorumRow:
    """A node of the metadata quorum. `end` and `lag` are None if the leader has not received a fetch from the node."""

    node_id: int
    role: str
    end: int | None
    lag: int | None
    caught_up: str


def routes() -> list[Route]:
    """Return the route of the overview."""
    return [Route("/", overview)]


async def overview(request: Request) -> Response:
    """Page `/`: the overview."""
    snapshot = view_of(request).snapshot
    return render(
        request,
        "overview.html",
        section=SECTION,
        figures=figures(snapshot),
        brokers=broker_rows(snapshot),
        quorum=quorum_rows(snapshot),
    )


def figures(snapshot: ClusterSnapshot) -> list[tuple[str, str, str]]:
    """Return name, value and link of each key figure."""
    quorum = snapshot.quorum
    brokers = [one for one in snapshot.cluster.brokers if not one.is_fenced] if snapshot.cluster else []
    leader = "–" if quorum is None or quorum.leader is None else str(quorum.leader)
    return [
        _figure(len(brokers), "broker", "/nodes"),
        ("controllers", "–", "/nodes") if quorum is None else _figure(len(quorum.voters), "controller", "/nodes"),
        ("active controller", leader, "/nodes"),
        _figure(len(snapshot.topics), "topic", "/topics"),
        _figure(sum(len(topic.partitions) for topic in snapshot.topics.values()), "partition", "/partitions"),
        _figure(len(snapshot.groups), "group", "/groups"),
        ("moving", f"{len(snapshot.reassignments):,}", "/reassignments"),
    ]


def _figure(count: int, what: str, link: str) -> tuple[str, str, str]:
    value, _, name = counted(count, what).partition(" ")
    return name, value, link


def broker_rows(snapshot: ClusterSnapshot) -> list[BrokerRow]:
    """Return all brokers that are registered or assigned a replica."""
    leaders = Counter(part.leader for part in snapshot.partitions())
    replicas = Counter(replica for part in snapshot.partitions() for replica in part.replicas)
    known = {one.node_id: one for one in snapshot.cluster.brokers} if snapshot.cluster else {}
    rows = []
    for node_id in sorted(known.keys() | assigned_brokers(snapshot)):
        one = known.get(node_id)
        state = "missing" if one is None else "fenced" if one.is_fenced else "active"
        address = None if one is None else str(one.address)
        rack = None if one is None else one.rack
        rows.append(BrokerRow(node_id, address, rack, state, leaders[node_id], replicas[node_id]))
    return rows


def quorum_rows(snapshot: ClusterSnapshot) -> list[QuorumRow]:
    """Return the rows of the voters, then those of the observers."""
    quorum = snapshot.quorum
    if quorum is None:
        return []
    return [
        QuorumRow(
            one.node_id,
            "leader" if role == "voter" and one.node_id == quorum.leader else role,
            None if one.log_end_offset < 0 else one.log_end_offset,
            None if one.log_end_offset < 0 else max(0, quorum.log_end_offset - one.log_end_offset),
            caught_up(one.last_caught_up_ms, snapshot.taken_ms),
        )
        for role, replicas in (("voter", quorum.voters), ("observer", quorum.observers))
        for one in replicas
    ]


def caught_up(last_ms: int | None, now_ms: int) -> str:
    """Return as text how long ago a replica was last caught up; a dash if the leader does not report it."""
    return "–" if last_ms is None or last_ms <= 0 else ago(max(0, now_ms - last_ms))
