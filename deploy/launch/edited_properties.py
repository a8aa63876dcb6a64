"""A node's `server.properties` when its cluster is started again: what `kraft up` writes, under what was edited since.

An edit is a difference between the file and what `kraft up` wrote last. It stays, unless `kraft up` sets that key
itself or is asked for another value of it now: then a notice names the key and the option.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_ANOTHER_DATA = "another --data"
OPTION_OF: Mapping[str, str] = MappingProxyType(
    {
        "process.roles": "--combined",
        "node.id": _ANOTHER_DATA,
        "log.dirs": _ANOTHER_DATA,
        "controller.quorum.voters": "--port",
        "controller.listener.names": "kraft node",
        "inter.broker.listener.name": "kraft node",
        "listener.security.protocol.map": "kraft node",
        "listeners": "--port and --external",
        "advertised.listeners": "--port and --external",
        "kraft.fault.control.socket": "--fault-control",
    }
)
"""Keys that `kraft up` always sets, and what changes them."""


class Merged(NamedTuple):
    """`properties` for the file; `overruled`: the keys whose edit does not stay, each with what to use instead."""

    properties: dict[str, str]
    overruled: tuple[str, ...]


def merge_edits(written: Mapping[str, str], found: Mapping[str, str], wanted: Mapping[str, str]) -> Merged:
    """`written` by the last start, `found` in the file, `wanted` by this start."""
    properties = dict(wanted)
    overruled: list[str] = []
    for key in sorted({*written, *found}):
        edited, asked = found.get(key), wanted.get(key)
        if edited == written.get(key) or edited == asked:
            continue
        if key in OPTION_OF:
            overruled.append(f"{key} (use {OPTION_OF[key]})")
        elif asked != written.get(key):
            overruled.append(f"{key} (this start {'leaves it out' if asked is None else f'sets {asked!r}'})")
        elif edited is None:
            del properties[key]
        else:
            properties[key] = edited
    return Merged(properties, tuple(overruled))
