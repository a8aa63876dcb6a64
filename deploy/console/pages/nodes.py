"""Brokers and controllers: state, log directories, metrics over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kraft.client.admin import LogDir
from kraft.deploy.console.cluster_view import FAILURES, ClusterView
from kraft.deploy.console.pages.overview import BrokerRow, QuorumRow, broker_rows, quorum_rows
from kraft.deploy.console.pages.topics import DETAIL_SECONDS_MAX
from kraft.deploy.console.rendering import render, view_of
from kraft.deploy.console.snapshot import ClusterSnapshot

SECTION = "Nodes"
SERIES_IN_LIST = ("CPU", "Bytes in", "Produce p99")


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with one or both roles. `address` is the broker's listener for clients. For a node that is only a
    controller, it is the listener of the quorum."""

    node_id: int
    address: str | None
    broker: BrokerRow | None
    quorum: QuorumRow | None
    metrics: Mapping[str, tuple[float, ...]]


def routes() -> list[Route]:
    """Return the routes of the node list and of one node."""
    return [Route("/nodes", nodes), Route("/nodes/{node_id:int}", node_page)]


async def nodes(request: Request) -> Response:
    """Page `/nodes`: the list of nodes."""
    view = view_of(request)
    rows = node_rows(view, view.snapshot)
    return render(request, "nodes.html", section=SECTION, rows=rows, series=SERIES_IN_LIST)


def node_rows(view: ClusterView, snapshot: ClusterSnapshot) -> list[NodeRow]:
    """Return all known nodes, by id."""
    brokers = {one.node_id: one for one in broker_rows(snapshot)}
    quorum = {one.node_id: one for one in quorum_rows(snapshot)}
    return [
        NodeRow(
            node_id,
            brokers[node_id].address if node_id in brokers else _quorum_address(snapshot, node_id),
            brokers.get(node_id),
            quorum.get(node_id),
            view.metrics.of(node_id),
        )
        for node_id in sorted(brokers.keys() | quorum.keys())
    ]


def _quorum_address(snapshot: ClusterSnapshot, node_id: int) -> str | None:
    listeners = snapshot.quorum.endpoints.get(node_id, ()) if snapshot.quorum else ()
    return str(listeners[0].address) if listeners else None


async def node_page(request: Request) -> Response:
    """Page `/nodes/ID`: one node."""
    view, node_id = view_of(request), request.path_params["node_id"]
    row = next((one for one in node_rows(view, view.snapshot) if one.node_id == node_id), None)
    if row is None:
        raise HTTPException(404, f"There is no node {node_id}")
    quorum = view.snapshot.quorum
    return render(
        request,
        "node.html",
        section=SECTION,
        row=row,
        directories=await _log_dirs(view, row),
        endpoints=quorum.endpoints.get(node_id, ()) if quorum else (),
        metrics_address=view.metrics.addresses().get(node_id),
        metrics_problem=view.metrics.problems.get(node_id),
        tab="node",
    )


async def _log_dirs(view: ClusterView, row: NodeRow) -> tuple[LogDir, ...]:
    if row.broker is None or row.broker.state != "active":
        return ()
    with trio.move_on_after(DETAIL_SECONDS_MAX):
        try:
            return await view.admin.nodes.log_dirs([row.node_id])
        except FAILURES:
            return ()
    return ()
