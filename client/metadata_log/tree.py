"""Pure: cluster metadata as a tree of names, and the differences between two trees.

Paths are separated by slashes: `topics/orders/partitions/0/leader`, `configs/topic/orders/retention.ms`. Settings that
hold secrets show `[hidden]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kraft.config.secrets import HIDDEN, is_secret_key
from kraft.image import BrokerRegistration, ControllerRegistration, Endpoint, MetadataImage, PartitionState, TopicImage
from kraft.seam.ids import encode_uuid

Tree = dict[str, Any]

SEPARATOR = "/"
ALL = "(all)"
_QUIET = ("elr", "last_known_elr", "removing", "adding")
"""Fields of a partition that are shown only if they are not empty."""


class PathNotFound(Exception):
    """The tree has nothing at this path. The text names the part of the path that exists and its children."""


@dataclass(frozen=True, slots=True)
class Change:
    """A difference at one path. `before` or `after` is None if the path does not exist there."""

    path: str
    before: Any
    after: Any


def tree_of(image: MetadataImage, topics: Iterable[TopicImage] | None = None) -> Tree:
    """Return the whole image as a tree, sorted by name. If `topics` are given, it contains only these topics."""
    shown = image.topics if topics is None else topics
    return {
        "cluster": {
            "cluster_id": image.cluster_id,
            "offset": image.offset,
            "epoch": image.epoch,
            "release": image.release,
            "next_producer_id": image.next_producer_id,
        },
        "features": dict(sorted(image.features.items())),
        "controllers": {str(one.controller_id): _controller(one) for one in image.sorted_controllers()},
        "brokers": {str(one.broker_id): _broker(one) for one in image.sorted_brokers()},
        "topics": {topic.name: _topic(topic) for topic in sorted(shown, key=lambda topic: topic.name)},
        "configs": _configs(image),
    }


def find(tree: Tree, path: str) -> Any:
    """Return the value at a path; the whole tree for an empty path. A name may itself contain slashes."""
    found: Any = tree
    rest = path.strip(SEPARATOR)
    while rest:
        if not isinstance(found, Mapping):
            raise PathNotFound(f"{path}: there is no {rest} below a value")
        name = next((name for name in found if rest == name or rest.startswith(name + SEPARATOR)), None)
        if name is None:
            names = list(found)
            shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
            raise PathNotFound(f"{path}: there is no {rest.split(SEPARATOR)[0]}; there are {shown or 'none'}")
        found, rest = found[name], rest[len(name) + 1 :]
    return found


def differences(before: Any, after: Any) -> Iterator[Change]:
    """Yield the changes, in order of path. An added or removed subtree is one change."""
    for names, old, new in differing(before, after):
        yield Change(SEPARATOR.join(names), old, new)


def differing(before: Any, after: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield (names, before, after) of each difference. In contrast to `differences`, a path is a tuple of names, which
    may contain slashes."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in [*before, *(name for name in after if name not in before)]:
            yield from differing(before.get(name), after.get(name), (*names, name))
    elif before != after:
        yield names, before, after


def render(value: Any, indent: str = "") -> Iterator[str]:
    """Format a subtree as lines: short mappings on one line, longer ones as indented blocks."""
    if not isinstance(value, Mapping) or not value:
        yield f"{indent}{_text(value)}"
        return
    width = max((len(name) for name, item in value.items() if not _is_block(item)), default=0)
    for name, item in value.items():
        if _is_block(item):
            yield f"{indent}{name}"
            yield from render(item, indent + "  ")
        else:
            yield f"{indent}{name:{width}}  {_text(item)}"


def render_change(change: Change) -> str:
    """Format a change as one line: `+` added, `-` removed, `~` changed."""
    if change.before is None:
        return f"+ {change.path}  {_text(change.after)}"
    if change.after is None:
        return f"- {change.path}  {_text(change.before)}"
    return f"~ {change.path}  {_text(change.before)} → {_text(change.after)}"


def _is_block(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and not _is_flat(value)


def _is_flat(value: Mapping[str, Any]) -> bool:
    return len(value) <= 12 and not any(isinstance(item, Mapping) for item in value.values())


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return "[" + ",".join(str(item) for item in value) + "]"
    if isinstance(value, Mapping):
        if not value:
            return "-"
        parts = (
            f"{name}: {len(item)}" if isinstance(item, Mapping) else f"{name}={_text(item)}"
            for name, item in value.items()
        )
        return "  ".join(parts)
    return str(value)


def _controller(one: ControllerRegistration) -> Tree:
    return {"incarnation": encode_uuid(one.incarnation_id), "endpoints": _endpoints(one.endpoints)}


def _broker(one: BrokerRegistration) -> Tree:
    state = "fenced" if one.fenced else "shutting down" if one.in_controlled_shutdown else "active"
    return {
        "state": state,
        "epoch": one.broker_epoch,
        "incarnation": encode_uuid(one.incarnation_id),
        "endpoints": _endpoints(one.endpoints),
        "rack": one.rack,
        "host_id": one.host_id,
        "log_dirs": [encode_uuid(directory) for directory in one.log_dirs],
    }


def _endpoints(endpoints: tuple[Endpoint, ...]) -> list[str]:
    return [f"{one.name}://{one.host}:{one.port}" for one in endpoints]


def _topic(topic: TopicImage) -> Tree:
    return {
        "id": encode_uuid(topic.topic_id),
        "partitions": {str(index): _partition(state) for index, state in topic.partitions()},
    }


def _partition(state: PartitionState) -> Tree:
    told: Tree = {
        "leader": state.leader if state.leader >= 0 else None,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "replicas": list(state.replicas),
        "isr": list(state.isr),
    }
    return told | {name: list(getattr(state, name)) for name in _QUIET if getattr(state, name)}


def _configs(image: MetadataImage) -> Tree:
    kinds: dict[str, Tree] = {}
    for kind, name in image.sorted_config_keys():
        settings = image.configs_of(kind, name)
        shown = {key: HIDDEN if is_secret_key(key) else settings[key] for key in sorted(settings)}
        kinds.setdefault(kind.name.lower(), {})[name or ALL] = shown
    return dict(kinds)
