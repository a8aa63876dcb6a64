"""Settings of topics and brokers: where each value comes from, differences from the default, and changing them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlencode

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kraft.client.admin import (
    Admin,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kraft.deploy.console.rendering import form_of, redirect, render, view_of

SOURCES = MappingProxyType(
    {
        ConfigSource.TOPIC: "this topic",
        ConfigSource.DYNAMIC_BROKER: "this broker, dynamic",
        ConfigSource.DYNAMIC_DEFAULT_BROKER: "all brokers, dynamic",
        ConfigSource.STATIC_BROKER: "server.properties",
        ConfigSource.DEFAULT: "default",
        ConfigSource.GROUP: "this group",
    }
)
SETTLE_SECONDS, SETTLE_SECONDS_MAX = 0.05, 2.0
"""Seconds between two polls, and maximum seconds, until a broker reports a change. Brokers learn of a change a little
later than the controller, and the next page reads from brokers. A broker that is slower than the maximum still shows
the old value."""
_MARKUP = re.compile(r"<[^>]*>")


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A setting as the page shows it. `default` is None if the cluster does not report it."""

    name: str
    value: str | None
    source: str
    default: str | None
    is_changed: bool
    is_read_only: bool
    is_sensitive: bool
    is_own: bool
    """Whether the value is set dynamically for this resource itself, so that it can be removed."""
    documentation: str


def routes() -> list[Route]:
    """Return the routes for the settings of a topic, of a broker, and (`all`) of all brokers."""
    return [
        Route("/topics/{name}/configs", topic_configs),
        Route("/topics/{name}/configs", alter_topic, methods=["POST"]),
        Route("/nodes/{name}/configs", broker_configs),
        Route("/nodes/{name}/configs", alter_broker, methods=["POST"]),
    ]


async def topic_configs(request: Request) -> Response:
    """Page `/topics/NAME/configs?show=&q=&edit=`: the settings of a topic."""
    return await _show(request, "Topics", f"/topics/{request.path_params['name']}")


async def broker_configs(request: Request) -> Response:
    """Page `/nodes/ID/configs?show=&q=&edit=`: the settings of a broker, or of all brokers."""
    return await _show(request, "Nodes", f"/nodes/{request.path_params['name']}")


async def alter_topic(request: Request) -> Response:
    """Set or remove one setting of a topic."""
    return await _alter(request, f"/topics/{request.path_params['name']}")


async def alter_broker(request: Request) -> Response:
    """Set or remove one setting of a broker."""
    return await _alter(request, f"/nodes/{request.path_params['name']}")


def _resource(request: Request) -> ConfigResource:
    name = request.path_params["name"]
    if request.url.path.startswith("/topics/"):
        return ConfigResource(ResourceType.TOPIC, name)
    if name == "all":
        return ConfigResource(ResourceType.BROKER, "")
    if not name.isdecimal():
        raise HTTPException(404, f"There is no broker {name}")
    return ConfigResource(ResourceType.BROKER, name)


async def _show(request: Request, section: str, owner_path: str) -> Response:
    resource, query = _resource(request), request.query_params
    entries = await view_of(request).admin.configs.describe(resource, documentation=True, synonyms=True)
    rows = config_rows(entries)
    wanted, is_all = query.get("q", "").lower(), query.get("show") == "all"
    shown = [row for row in rows if wanted in row.name.lower() and (is_all or wanted or row.is_changed)]
    return render(
        request,
        "configs.html",
        section=section,
        resource=resource,
        owner_path=owner_path,
        rows=shown,
        total=len(rows),
        changed=sum(row.is_changed for row in rows),
        edited=query.get("edit", ""),
        tab="configs",
    )


def config_rows(entries: Iterable[ConfigEntry]) -> list[ConfigRow]:
    """Return the row of each setting."""
    return [
        ConfigRow(
            entry.name,
            None if entry.is_sensitive else entry.value,
            SOURCES.get(entry.source, "unknown"),
            default_of(entry),
            entry.source is not ConfigSource.DEFAULT,
            entry.is_read_only,
            entry.is_sensitive,
            entry.source in (ConfigSource.TOPIC, ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            " ".join(_MARKUP.sub("", entry.documentation or "").split()),
        )
        for entry in entries
    ]


def default_of(entry: ConfigEntry) -> str | None:
    """Return the value that would apply if the setting were removed; None if the cluster does not report it."""
    if entry.source is ConfigSource.DEFAULT:
        return entry.value
    return next((one.value for one in reversed(entry.synonyms) if one.source is ConfigSource.DEFAULT), None)


async def _alter(request: Request, owner_path: str) -> Response:
    """Change one setting, and redirect to its page with a notice. The notice is part of an address, which browsers
    store, so it must not contain the value."""
    form, resource, admin = form_of(request), _resource(request), view_of(request).admin
    key = form.get("key", "")
    if form.get("action") == "remove":
        change, text = ConfigChange(ConfigOperation.DELETE, key), f"{key} is removed"
    else:
        change, text = ConfigChange(ConfigOperation.SET, key, form.get("value", "")), f"{key} is set"
    before = await _entry(admin, resource, key)
    await admin.configs.alter(resource, [change])
    with trio.move_on_after(SETTLE_SECONDS_MAX):
        while True:
            now = await _entry(admin, resource, key)
            if now != before or (now is not None and now.value == change.value):
                break
            await trio.sleep(SETTLE_SECONDS)
    query = urlencode({"show": form.get("show", ""), "notice": f"{resource}: {text}."})
    return redirect(f"{owner_path}/configs?{query}")


async def _entry(admin: Admin, resource: ConfigResource, key: str) -> ConfigEntry | None:
    return next((entry for entry in await admin.configs.describe(resource) if entry.name == key), None)
