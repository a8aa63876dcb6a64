"""Groups: state, members, and lag over time."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kraft.client.admin.group_lag import find_progress, total_lag
from kraft.deploy.console.paging import cut
from kraft.deploy.console.rendering import form_of, redirect, render, view_of

SECTION = "Groups"


def routes() -> list[Route]:
    """Return the routes of the group list, of one group, and of its deletion. A group id may contain any character, so
    it is in the query string."""
    return [
        Route("/groups", groups),
        Route("/group", group_page),
        Route("/group/delete", delete, methods=["POST"]),
    ]


async def groups(request: Request) -> Response:
    """Page `/groups?q=&state=&page=`: the list of groups."""
    view, query = view_of(request), request.query_params
    wanted, state = query.get("q", "").lower(), query.get("state", "")
    listed = sorted(view.snapshot.groups, key=lambda one: one.group_id)
    chosen = [one for one in listed if wanted in one.group_id.lower() and state in ("", one.state)]
    page = cut(chosen, query.get("page", ""), "group")
    states = sorted({one.state for one in listed})
    return render(request, "groups.html", section=SECTION, page=page, states=states, lags=view.lags)


async def group_page(request: Request) -> Response:
    """Page `/group?id=&page=`: one group."""
    view, group_id = view_of(request), request.query_params.get("id", "")
    group = await view.admin.groups.describe(group_id)
    lags = await find_progress(view.admin, group)
    return render(
        request,
        "group.html",
        section=SECTION,
        group=group,
        total=total_lag(lags),
        page=cut(lags, request.query_params.get("page", ""), "partition"),
        samples=view.lags.of(group_id),
        topics=sorted({one.topic for one in lags}),
    )


async def delete(request: Request) -> Response:
    """Delete a group that has no members, and its offsets."""
    group_id = form_of(request).get("id", "")
    await view_of(request).admin.groups.delete(group_id)
    await view_of(request).refresh()
    return redirect("/groups", f"Group {group_id} is deleted.")
