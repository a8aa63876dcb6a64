"""Merge a node's `server.properties` when its cluster is started again: the lines of `kraft up` and the user's edits.

An edit is a difference between the file and the text that `kraft up` wrote last. It is kept, unless `kraft up` always
sets that key itself, or its options now give the key another value. In these cases, a notice names the key and the
option to use instead.
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
"""Keys that `kraft up` always sets, each with the option that changes its value."""


class Merged(NamedTuple):
    """Result of a merge. `properties` is the new content of the file. `overruled` has the keys whose edits are dropped,
    each with the option to use instead."""

    properties: dict[str, str]
    overruled: tuple[str, ...]


def merge_edits(written: Mapping[str, str], found: Mapping[str, str], wanted: Mapping[str, str]) -> Merged:
    """Merge three versions of the properties: those that the last start has `written`, those `found` in the file, and
    those that this start has `wanted`."""
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
