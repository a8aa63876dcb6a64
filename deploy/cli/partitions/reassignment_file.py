"""The JSON of reassignments, as kafka-reassign-partitions.sh reads and writes it.

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/d2"]}]}

`log_dirs` may be left out; with "any" the broker chooses the directory. A file of topics to plan for is {"version": 1,
"topics": [{"topic": "orders"}]}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed

VERSION = 1
ANY_DIRECTORY = "any"
TopicPartition = tuple[str, int]


class Placement(NamedTuple):
    """Planned replicas of one partition. `log_dirs` has one entry per entry of `replicas`, or is empty."""

    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...] = ()

    @property
    def directories(self) -> dict[int, str]:
        """Planned log directory of each replica for which the plan names one, by broker."""
        pairs = zip(self.replicas, self.log_dirs, strict=False)
        return {broker: path for broker, path in pairs if path != ANY_DIRECTORY}


def read_plan(path: Path) -> dict[TopicPartition, Placement]:
    """Read the partitions of a file. Raise CommandFailed with the first error."""
    plan: dict[TopicPartition, Placement] = {}
    for number, row in enumerate(_rows(path, "partitions")):
        where = f"{path}: partitions[{number}]"
        topic = _field(row, "topic", str, where)
        partition = (topic, _field(row, "partition", int, where))
        replicas = tuple(_field(row, "replicas", list, where))
        log_dirs = _log_dirs(row.get("log_dirs"), len(replicas), where)
        if not replicas or not all(isinstance(one, int) and not isinstance(one, bool) for one in replicas):
            raise _wrong(f"{where}: replicas must be a list of broker ids, not {list(replicas)}")
        if partition in plan:
            raise _wrong(f"{where}: {topic}-{partition[1]} stands twice")
        if len(set(replicas)) != len(replicas):
            raise _wrong(f"{where}: {topic}-{partition[1]} names a broker twice: {list(replicas)}")
        plan[partition] = Placement(replicas, log_dirs)
    return plan


def read_topics(path: Path) -> list[str]:
    """Read the topics of a file that names topics to move."""
    return [_field(row, "topic", str, f"{path}: topics[{number}]") for number, row in enumerate(_rows(path, "topics"))]


def write_plan(plan: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return the plan as one line of JSON, sorted by topic and partition."""
    rows = [
        {"topic": topic, "partition": index, "replicas": list(replicas), "log_dirs": [ANY_DIRECTORY] * len(replicas)}
        for (topic, index), replicas in sorted(plan.items())
    ]
    return json.dumps({"version": VERSION, "partitions": rows}, separators=(",", ":"))


def save_plan(path: Path, plan: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Write the plan to a file. Raise CommandFailed if that fails."""
    try:
        path.write_text(write_plan(plan) + "\n")
    except OSError as problem:
        raise _wrong(f"{path}: {problem.strerror}") from problem


def _rows(path: Path, name: str) -> list[Any]:
    try:
        text = path.read_text()
        if not text.strip():
            raise _wrong(f"{path}: the file is empty: did the command that was to write it fail?")
        document = json.loads(text)
    except OSError as problem:
        raise _wrong(f"{path}: {problem.strerror}") from problem
    except ValueError as problem:
        raise _wrong(f"{path}: not JSON: {problem}") from problem
    if not isinstance(document, dict) or not isinstance(document.get(name), list):
        raise _wrong(f'{path}: expected an object with a list "{name}"')
    if document.get("version", VERSION) != VERSION:
        raise _wrong(f"{path}: version {document['version']} is not known, expected {VERSION}")
    if not document[name]:
        raise _wrong(f'{path}: the list "{name}" is empty')
    return list(document[name])


def _field(row: Any, name: str, kind: type, where: str) -> Any:
    value = row.get(name) if isinstance(row, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _wrong(f'{where}: expected a field "{name}" with a value of type {kind.__name__}, got {value!r}')
    return value


def _log_dirs(value: Any, count: int, where: str) -> tuple[str, ...]:
    """Return the directories of a row; none if the field is null or missing."""
    given = [] if value is None else value
    is_list = isinstance(given, list) and all(isinstance(one, str) for one in given)
    if not is_list or len(given) not in (0, count):
        raise _wrong(f"{where}: log_dirs must name one directory (or any) for each of the {count} replicas")
    return tuple(given)


def _wrong(text: str) -> CommandFailed:
    return CommandFailed(text, code=EXIT_USAGE)
