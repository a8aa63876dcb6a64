"""Partitions that are being reassigned, and the progress of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kraft.client.admin import LogDirReplica, Reassignment
from kraft.deploy.console.pages.topics import find_replicas, int_of
from kraft.deploy.console.paging import cut
from kraft.deploy.console.rendering import form_of, redirect, render, view_of

SECTION = "Topics"
Held = Mapping[tuple[int, str, int], tuple[str, LogDirReplica]]


@dataclass(frozen=True, slots=True)
class MoveRow:
    """A running move. `share` is the number of bytes copied to the new replicas as a share of the size of the largest
    replica; None if unknown."""

    topic: str
    partition: int
    move: Reassignment
    done_bytes: int
    whole_bytes: int

    @property
    def share(self) -> float | None:
        return min(1.0, self.done_bytes / self.whole_bytes) if self.whole_bytes else None


def routes() -> list[Route]:
    """Return the routes of the list of moves, and of cancelling one move."""
    return [Route("/reassignments", reassignments), Route("/reassignments/cancel", cancel, methods=["POST"])]


async def reassignments(request: Request) -> Response:
    """Page `/reassignments?page=`: the list of moves."""
    view = view_of(request)
    moves = sorted(view.snapshot.reassignments.items())
    page = cut(moves, request.query_params.get("page", ""), "partition")
    brokers = {broker for _, move in page.rows for broker in move.replicas}
    held = await find_replicas(view, [tp for tp, _ in page.rows], tuple(brokers)) if page.rows else {}
    rows = [move_row(*tp, move, held) for tp, move in page.rows]
    return render(request, "reassignments.html", section=SECTION, page=page, rows=rows)


def move_row(topic: str, partition: int, move: Reassignment, held: Held) -> MoveRow:
    """Return the row of a move, with its progress computed from the sizes of its replicas."""
    sizes = {
        broker: held[broker, topic, partition][1].size_bytes
        for broker in move.replicas
        if (broker, topic, partition) in held
    }
    whole = max((size for broker, size in sizes.items() if broker not in move.adding), default=0)
    done = sum(min(sizes.get(broker, 0), whole) for broker in move.adding)
    return MoveRow(topic, partition, move, done, whole * len(move.adding))


async def cancel(request: Request) -> Response:
    """Cancel a move, so that the partition keeps its previous replicas."""
    form = form_of(request)
    tp = form.get("topic", ""), int_of(form, "partition")
    problem = (await view_of(request).admin.partitions.reassign({tp: None})).get(tp)
    if problem is not None:
        raise problem
    await view_of(request).refresh()
    return redirect("/reassignments", f"{tp[0]}-{tp[1]} keeps its replicas.")
