"""How groups, their members and their progress are printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kraft.deploy.cli.output import emphasized, plain, table

if TYPE_CHECKING:
    from kraft.client.admin import GroupDescription
    from kraft.client.admin.group_lag import PartitionLag, SharePartitionLag

    Lags = Sequence[PartitionLag | SharePartitionLag]


def member_table(group: GroupDescription) -> tuple[list[str], list[tuple[object, ...]]]:
    """Return the columns and rows of a group's members."""
    columns = ["member", "instance", "client_id", "host", "partitions", "assignment"]
    rows: list[tuple[object, ...]] = [
        (
            member.member_id,
            member.instance_id,
            member.client_id,
            member.host,
            len(member.assignment),
            _places(member.assignment),
        )
        for member in group.members
    ]
    if group.epoch is None:
        return columns, rows
    columns, rows = [*columns, "epoch"], [(*row, member.epoch) for row, member in zip(rows, group.members, strict=True)]
    if group.type == "Share":
        return columns, rows
    return [*columns, "target"], [
        (*row, _places(member.target or ())) for row, member in zip(rows, group.members, strict=True)
    ]


def _places(assignment: Iterable[tuple[str, int]]) -> list[str]:
    return [f"{topic}-{index}" for topic, index in assignment]


def json_of(group: GroupDescription, lags: Lags) -> dict[str, object]:
    """Return a description as a JSON object."""
    from kraft.client.admin.group_lag import total_lag

    return {**plain(group), "lag": total_lag(lags), "partitions": [_json_row(one) for one in lags]}


def _json_row(one: PartitionLag | SharePartitionLag) -> dict[str, object]:
    from kraft.client.admin.group_lag import SharePartitionLag

    place: dict[str, object] = {"topic": one.topic, "partition": one.partition}
    if isinstance(one, SharePartitionLag):
        members = [member.member_id for member in one.members]
        return {**place, "start_offset": one.start_offset, "lag": one.lag, "members": members}
    return {
        **place,
        "committed": one.committed,
        "end_offset": one.end_offset,
        "lag": one.lag,
        "member": None if one.member is None else one.member.member_id,
    }


def text_of(group: GroupDescription, lags: Lags) -> str:
    """Return a description as a line of facts and a table of partitions."""
    from kraft.client.admin.group_lag import total_lag

    total = total_lag(lags)
    facts = [
        f"group {emphasized(group.group_id)}",
        f"state {group.state}",
        f"type {group.type}",
        f"assignor {group.assignor or '-'}",
        f"coordinator {group.coordinator}",
        *([] if group.epoch is None else [f"epoch {group.epoch}", f"assignment epoch {group.assignment_epoch}"]),
        f"members {len(group.members)}",
        f"total lag {'-' if total is None else f'{total:,}'}",
    ]
    head = "  ".join(facts)
    if not lags:
        return head
    return f"{head}\n{table(*_partition_table(lags))}"


def _partition_table(lags: Lags) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and rows of a group's partitions."""
    from kraft.client.admin.group_lag import SharePartitionLag

    rows: list[tuple[Any, ...]] = []
    columns = ["topic", "partition", "committed", "end_offset", "lag", "member", "client_id", "host"]
    for one in lags:
        if isinstance(one, SharePartitionLag):
            columns = ["topic", "partition", "start_offset", "lag", "members"]
            members = [member.member_id for member in one.members]
            rows.append((one.topic, one.partition, one.start_offset, one.lag, members))
            continue
        member = one.member
        reader: tuple[str | None, ...] = (None, None, None)
        if member is not None:
            reader = (member.instance_id or member.member_id, member.client_id, member.host)
        rows.append((one.topic, one.partition, one.committed, one.end_offset, one.lag, *reader))
    return columns, rows
