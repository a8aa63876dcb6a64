"""Topics, their partitions, and the replicas of one partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kraft.client.admin import EARLIEST, LATEST, ElectionType, LogDirReplica, NewTopic, PartitionDescription
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.deploy.console.cluster_view import FAILURES, ClusterView
from kraft.deploy.console.paging import cut
from kraft.deploy.console.rendering import counted, form_of, redirect, render, view_of
from kraft.deploy.console.snapshot import STATES, ClusterSnapshot

SECTION = "Topics"
DETAIL_SECONDS_MAX = 1.5
"""Time limit in seconds for requesting the offsets and sizes that a page shows. If it passes, for example because a
broker is down, the page leaves them out."""
SORTS = ("name", "partitions", "problems")
NUMBER_MAX = 2**31 - 1
FACTOR_MAX = 2**15 - 1
"""Maximum replication factor: the largest value of the field in the protocol."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in the list. `states` has the number of the topic's partitions per state."""

    name: str
    is_internal: bool
    partitions: int
    replication_factor: int
    states: Mapping[str, int]


def routes() -> list[Route]:
    """Return the routes of the lists, the details and the changes of topics."""
    return [
        Route("/topics", topics),
        Route("/topics", create, methods=["POST"]),
        Route("/partitions", partitions),
        Route("/topics/{topic}", topic_page),
        Route("/topics/{topic}/delete", delete, methods=["POST"]),
        Route("/topics/{topic}/partitions", add_partitions, methods=["POST"]),
        Route("/topics/{topic}/{index:int}", partition_page),
        Route("/topics/{topic}/{index:int}/elect", elect, methods=["POST"]),
        Route("/topics/{topic}/{index:int}/move", move, methods=["POST"]),
    ]


async def topics(request: Request) -> Response:
    """Page `/topics?q=&state=&sort=&internal=&page=`: the list of topics."""
    query = request.query_params
    rows = topic_rows(view_of(request).snapshot)
    wanted = query.get("q", "").lower()
    state, sort = query.get("state", ""), query.get("sort", "name")
    matching = [row for row in rows if wanted in row.name.lower() and (not state or row.states.get(state))]
    rows = [row for row in matching if not row.is_internal or query.get("internal") or wanted]
    hidden = len(matching) - len(rows)
    if sort == "partitions":
        rows.sort(key=lambda row: -row.partitions)
    elif sort == "problems":
        rows.sort(key=lambda row: -sum(row.states.values()))
    page = cut(rows, query.get("page", ""), "topic")
    return render(request, "topics.html", section=SECTION, page=page, hidden=hidden, states=STATES, sorts=SORTS)


def topic_rows(snapshot: ClusterSnapshot) -> list[TopicRow]:
    """Return all topics by name."""
    rows = []
    for topic in snapshot.topics.values():
        states: dict[str, int] = {}
        for part in topic.partitions:
            for state in snapshot.states(part):
                states[state] = states.get(state, 0) + 1
        rows.append(TopicRow(topic.name, topic.is_internal, len(topic.partitions), topic.replication_factor, states))
    return rows


async def partitions(request: Request) -> Response:
    """Page `/partitions?q=&state=&broker=&page=`: the partitions of all topics."""
    query = request.query_params
    found = choose_partitions(
        view_of(request).snapshot, query.get("q", ""), query.get("state", ""), query.get("broker", "")
    )
    page = cut(found, query.get("page", ""), "partition")
    return render(request, "partitions.html", section=SECTION, page=page, states=STATES)


def choose_partitions(snapshot: ClusterSnapshot, name: str, state: str, broker: str) -> list[PartitionDescription]:
    """Return the partitions that match each condition that is given: part of the topic's name, a state, a broker with a
    replica."""
    return [
        part
        for part in snapshot.partitions()
        if name.lower() in part.topic.lower()
        and (not state or state in snapshot.states(part))
        and (not broker.isdecimal() or int(broker) in part.replicas)
    ]


async def topic_page(request: Request) -> Response:
    """Page `/topics/NAME?state=&page=`: one topic with its partitions."""
    view = view_of(request)
    name = request.path_params["topic"]
    topic = view.snapshot.topics.get(name)
    if topic is None:
        raise HTTPException(404, f"There is no topic {name}")
    state = request.query_params.get("state", "")
    chosen = [part for part in topic.partitions if not state or state in view.snapshot.states(part)]
    page = cut(chosen, request.query_params.get("page", ""), "partition")
    offsets = await find_offsets(view, [(name, part.index) for part in page.rows if part.leader is not None])
    return render(
        request, "topic.html", section=SECTION, topic=topic, page=page, states=STATES, offsets=offsets, tab="partitions"
    )


async def find_offsets(view: ClusterView, wanted: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first offset and the end offset of each partition whose leader responds in time."""
    found: list[dict[TopicPartition, Any]] = []
    with trio.move_on_after(DETAIL_SECONDS_MAX):
        try:
            for target in (EARLIEST, LATEST):
                found.append(await view.admin.partitions.offsets_of_each(dict.fromkeys(wanted, target)))
        except FAILURES:
            return {}
    if len(found) < 2:
        return {}
    first, end = found
    return {
        tp: (first[tp].offset, end[tp].offset)
        for tp in wanted
        if tp in first and tp in end and not isinstance(first[tp], KafkaError) and not isinstance(end[tp], KafkaError)
    }


async def partition_page(request: Request) -> Response:
    """Page `/topics/NAME/INDEX`: one partition with its replicas."""
    view = view_of(request)
    part = _partition(request)
    tp = part.topic, part.index
    offsets = await find_offsets(view, [tp] if part.leader is not None else [])
    return render(
        request,
        "partition.html",
        section=SECTION,
        part=part,
        states=view.snapshot.states(part),
        offsets=offsets.get(tp),
        held=await find_replicas(view, [tp], part.replicas),
        moving=view.snapshot.reassignments.get(tp),
    )


def _partition(request: Request) -> PartitionDescription:
    name, index = request.path_params["topic"], request.path_params["index"]
    topic = view_of(request).snapshot.topics.get(name)
    found = None if topic is None else next((one for one in topic.partitions if one.index == index), None)
    if found is None:
        raise HTTPException(404, f"There is no partition {name}-{index}")
    return found


async def find_replicas(
    view: ClusterView, wanted: list[TopicPartition], brokers: tuple[int, ...]
) -> dict[tuple[int, str, int], tuple[str, LogDirReplica]]:
    """Return the directory and the size of each replica on these brokers, by (broker, topic, partition). Replicas on
    brokers that are down are missing."""
    cluster = view.snapshot.cluster
    up = {one.node_id for one in cluster.brokers if not one.is_fenced} if cluster else set()
    found: dict[tuple[int, str, int], tuple[str, LogDirReplica]] = {}

    async def ask(broker: int) -> None:
        try:
            directories = await view.admin.nodes.log_dirs([broker], partitions=wanted)
        except FAILURES:
            return
        for directory in directories:
            for one in directory.replicas:
                if not one.is_future:
                    found[broker, one.topic, one.partition] = directory.path, one

    with trio.move_on_after(DETAIL_SECONDS_MAX):
        async with trio.open_nursery() as nursery:
            for broker in up & set(brokers):
                nursery.start_soon(ask, broker)
    return found


async def create(request: Request) -> Response:
    """Create a topic."""
    form, view = form_of(request), view_of(request)
    name = form.get("name", "").strip()
    factor = int_of(form, "replication_factor", -1, most=FACTOR_MAX)
    await view.admin.topics.create(NewTopic(name, int_of(form, "partitions", -1), factor))
    await view.refresh()
    return redirect(f"/topics/{name}", f"Topic {name} is created.")


async def delete(request: Request) -> Response:
    """Delete a topic after the user has typed its name again."""
    name = request.path_params["topic"]
    if form_of(request).get("name", "").strip() != name:
        raise HTTPException(400, f"Type the topic's name, {name}, to delete it; nothing was changed")
    await view_of(request).admin.topics.delete(name)
    await view_of(request).refresh()
    return redirect("/topics", f"Topic {name} is deleted.")


async def add_partitions(request: Request) -> Response:
    """Add partitions to a topic."""
    name, count = request.path_params["topic"], int_of(form_of(request), "count")
    await view_of(request).admin.topics.add_partitions(name, count)
    await view_of(request).refresh()
    return redirect(f"/topics/{name}", f"{name} has {counted(count, 'partition')}.")


async def elect(request: Request) -> Response:
    """Move leadership to the preferred (first) replica."""
    part = _partition(request)
    tp = part.topic, part.index
    problem = (await view_of(request).admin.partitions.elect_leaders(ElectionType.PREFERRED, [tp])).get(tp)
    await view_of(request).refresh()
    text = f"The preferred replica leads {part.topic}-{part.index}." if problem is None else str(problem)
    return redirect(f"/topics/{part.topic}/{part.index}", text)


async def move(request: Request) -> Response:
    """Start to move a partition to other brokers."""
    part = _partition(request)
    tp = part.topic, part.index
    words = form_of(request).get("replicas", "").replace(",", " ").split()
    replicas = [number_of(word) for word in words]
    if not replicas or None in replicas:
        raise HTTPException(400, "Give the brokers as ids, such as 1,2,3: the first is preferred; nothing was changed")
    wanted = [one for one in replicas if one is not None]
    problem = (await view_of(request).admin.partitions.reassign({tp: wanted})).get(tp)
    if problem is not None:
        raise problem
    await view_of(request).refresh()
    return redirect(f"/topics/{part.topic}/{part.index}", f"{part.topic}-{part.index} moves to {', '.join(words)}.")


def int_of(form: Mapping[str, str], name: str, default: int | None = None, *, most: int = NUMBER_MAX) -> int:
    """Return the number in a form field, 0 to `most`. For an empty field return the default. Raise HTTPException for
    anything else."""
    text = form.get(name, "").strip()
    if not text and default is not None:
        return default
    found = number_of(text, most)
    if found is None:
        raise HTTPException(400, f"{name} {text!r}: expected a number from 0 to {most}; nothing was changed")
    return found


def number_of(text: str, most: int = NUMBER_MAX) -> int | None:
    """Parse a number from 0 to `most`; return None for anything else."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return int(text) if is_number and int(text) <= most else None
