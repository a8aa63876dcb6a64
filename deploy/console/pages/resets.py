"""Pages that reset a group's offsets. The plan is shown first, and then exactly this plan is carried out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kraft.client.admin.reset import PlannedReset, ResetRule, ResetTo, carry_out, offsets_of, plan_reset
from kraft.deploy.console.cluster_view import ClusterView, now_ms
from kraft.deploy.console.messages.query import OFFSET_MAX, BadQuery, parse_time_ms
from kraft.deploy.console.pages.topics import NUMBER_MAX
from kraft.deploy.console.rendering import counted, form_of, redirect, render, view_of

SECTION = "Groups"


def routes() -> list[Route]:
    """Return the routes of the plan, and of carrying it out."""
    return [Route("/group/reset", plan_page), Route("/group/reset", reset, methods=["POST"])]


async def plan_page(request: Request) -> Response:
    """Page `/group/reset?id=&to=&value=&topic=`: show what a reset would change. Changes nothing."""
    view, query = view_of(request), request.query_params
    group_id = query.get("id", "")
    group = await view.admin.groups.describe(group_id)
    rule = read_rule(query.get("to", ""), query.get("value", ""))
    committed = await (await offsets_of(view.admin, group_id)).offsets(group_id)
    topic = query.get("topic", "")
    chosen = [tp for tp in committed if topic in ("", tp[0])]
    plan = await plan_reset(view.admin, group_id, dict.fromkeys(chosen, rule))
    return render(
        request, "reset.html", section=SECTION, group=group, plan=plan, changes=sum(one.is_change for one in plan),
        packed=pack(plan), to=rule.to.value,
    )  # fmt: skip


def read_rule(to: str, value: str) -> ResetRule:
    """Parse the target of a reset from the query string. Raise HTTPException for an invalid target."""
    try:
        target = ResetTo(to)
    except ValueError:
        raise HTTPException(400, f"to {to!r}: expected one of {', '.join(one.value for one in ResetTo)}") from None
    if target not in (ResetTo.TIME, ResetTo.SHIFT, ResetTo.OFFSET):
        return ResetRule(target)
    try:
        return ResetRule(target, parse_time_ms(value.strip(), now_ms()) if target is ResetTo.TIME else int(value))
    except BadQuery as problem:
        raise HTTPException(400, str(problem)) from None
    except ValueError:
        raise HTTPException(400, f"{target.value} {value!r}: expected a number") from None


def pack(plan: tuple[PlannedReset, ...]) -> str:
    """Encode the changes of a plan as the value of a form field."""
    return json.dumps([[one.topic, one.partition, one.before, one.after] for one in plan if one.is_change])


def unpack(text: str) -> tuple[PlannedReset, ...]:
    """Decode changes that `pack` has encoded. Raise HTTPException for any other text."""
    try:
        plan = tuple(PlannedReset(*row) for row in json.loads(text))
    except (ValueError, TypeError, RecursionError):
        plan = None
    if plan is None or not all(map(_is_of_pack, plan)):
        raise HTTPException(400, "this is not a plan; nothing was changed")
    return plan


def _is_of_pack(one: PlannedReset) -> bool:
    numbers = ((one.partition, NUMBER_MAX), (one.before or 0, OFFSET_MAX), (one.after, OFFSET_MAX))
    return isinstance(one.topic, str) and all(type(number) is int and 0 <= number <= most for number, most in numbers)


async def reset(request: Request) -> Response:
    """Carry out a plan if the group's offsets have not changed since it was made."""
    view, form = view_of(request), form_of(request)
    group_id, plan = form.get("id", ""), unpack(form.get("plan", ""))
    await _require_unchanged_offsets(view, group_id, plan)
    await carry_out(view.admin, group_id, plan)
    notice = f"Changed: {counted(len(plan), 'offset')}."
    return redirect(f"/group?{urlencode({'id': group_id, 'notice': notice})}")


async def _require_unchanged_offsets(view: ClusterView, group_id: str, plan: tuple[PlannedReset, ...]) -> None:
    known = await offsets_of(view.admin, group_id)
    committed: Mapping[tuple[str, int], object] = await known.offsets(group_id)
    for one in plan:
        now = getattr(committed.get((one.topic, one.partition)), "offset", None)
        if now != one.before:
            raise HTTPException(
                409,
                f"{one.topic}-{one.partition} was committed again in the meantime ({one.before} when the plan was "
                f"made, {now} now): make the plan again; nothing was changed",
            )
