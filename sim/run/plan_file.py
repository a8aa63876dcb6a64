"""A plan as a small JSON file: written for a failing run, and read by `kraft sim replay`, `shrink` and `report`.

The file contains what was drawn, not only the seed: so the run stays the same when a later version draws differently.
Defaults are omitted. An unreadable file raises PlanFileError with the place of the error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis.plan import CLIENTS, FAULT_KINDS, SCHEDULE_VERSION, Fault, Plan, PlannedOperation
from kraft.sim.nemesis.plan_rules import problems_of
from kraft.sim.run.run import RunResult, Signature
from kraft.sim.world.options import WorldOptions

FORMAT = 1
"""Version of the file format. It is increased when an older version of the code could not read the file."""
_OUTSIDE_OF_OPTIONS = frozenset({"trace_lines"})
_RECORDED = frozenset({"format", "pykraft", "schedule", "check", "text", "finding", "trace_hash"})
"""Fields of the file that describe the recorded run, not the plan."""


class PlanFileError(ValueError):
    """The file has no valid plan; the text says what is wrong, and where."""


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """A plan and the result of its run: the first finding, if there was one."""

    plan: Plan
    trace_hash: str
    failure: Signature | None = None
    finding: str = ""
    pykraft: str = ""
    schedule: int = SCHEDULE_VERSION

    @classmethod
    def of(cls, result: RunResult, failure: Signature | None = None) -> RecordedPlan:
        """Make the record of a run. `failure`: the finding to record; by default the first."""
        alike = [found for found in result.findings if failure in (None, Signature.of(found))]
        first = alike[0] if alike else None
        signature = None if first is None else Signature.of(first)
        return cls(result.plan, result.trace_hash, signature, str(first or ""), version("pykraft"))


def write_plan(path: Path, recorded: RecordedPlan) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(recorded))


def read_plan(path: Path) -> RecordedPlan:
    """Read the plan in this file. Raises PlanFileError, or the OSError of a file that cannot be opened."""
    try:
        return parse(path.read_text())
    except UnicodeDecodeError as problem:
        raise PlanFileError(f"{path}: this is no text, and so no plan of a simulation") from problem
    except PlanFileError as problem:
        raise PlanFileError(f"{path}: {problem}") from problem


# writing


def render(recorded: RecordedPlan) -> str:
    """Return the text of a plan file: a line for each fault and each client."""
    plan, failure = recorded.plan, recorded.failure
    head = {
        "format": FORMAT,
        "pykraft": recorded.pykraft,
        "schedule": recorded.schedule,
        "check": None if failure is None else failure.check,
        "text": None if failure is None else failure.text,
        "finding": recorded.finding,
        "trace_hash": recorded.trace_hash,
        **_changed(plan, leave_out={"options", "shape", "faults", "work"}),
        "options": _changed(plan.options, leave_out=_OUTSIDE_OF_OPTIONS),
        "shape": _changed(plan.shape),
    }
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    lines.append(_block("faults", "[]", [json.dumps(_changed(fault)) for fault in plan.faults]))
    work = [f"{json.dumps(client)}: {_operations(work)}" for client, work in plan.work.items()]
    lines.append(_block("work", "{}", work))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _block(name: str, brackets: str, lines: list[str]) -> str:
    inner = ",\n".join(f"  {line}" for line in lines)
    return f'"{name}": {brackets[0]}\n{inner}\n{brackets[1]}' if lines else f'"{name}": {brackets}'


def _operations(operations: tuple[PlannedOperation, ...]) -> str:
    rows = [[each.at_ms, each.verb, each.target, each.amount] for each in operations]
    return json.dumps(rows, separators=(",", ":"))


def _changed(value: Any, leave_out: Any = frozenset()) -> dict[str, Any]:
    """Return the fields of a value that differ from their defaults."""
    return {
        item.name: getattr(value, item.name)
        for item in fields(value)
        if item.name not in leave_out and getattr(value, item.name) != _default(item)
    }


def _default(item: Field[Any]) -> Any:
    return item.default_factory() if item.default_factory is not MISSING else item.default


# reading


def parse(text: str) -> RecordedPlan:
    """Parse the plan in a file's text."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as problem:
        raise PlanFileError(f"this is no JSON: {problem}") from problem
    if not isinstance(data, dict):
        raise PlanFileError("this is no plan of a simulation: it must be an object with format and faults")
    if data.get("format", FORMAT) != FORMAT:
        raise PlanFileError(f"the format is {data['format']!r}, and this version reads {FORMAT}")
    missing = [f"no {name}" for name in ("format", "faults") if name not in data]
    if missing:
        raise PlanFileError(f"this is no plan of a simulation: it has {' and '.join(missing)}")
    shape = ClusterShape(**_checked(ClusterShape, data.get("shape", {}), "shape"))
    options = WorldOptions(**_checked(WorldOptions, data.get("options", {}), "options"))
    plan = Plan(
        **_checked(Plan, _own_part(data), "the file"),
        shape=shape,
        options=options,
        faults=tuple(_faults(data["faults"])),
        work=_work(data.get("work", {})),
    )
    wrong = next(problems_of(plan), None)
    if wrong is not None:
        raise PlanFileError(wrong)
    told = {name: data.get(name) or "" for name in ("check", "text", "trace_hash", "finding", "pykraft")}
    for name, value in told.items():
        if not isinstance(value, str):
            raise PlanFileError(f"{name} must be a text, and is {value!r}")
    check, text = told.pop("check"), told.pop("text")
    failure = Signature(check, text) if check else None
    return RecordedPlan(plan, failure=failure, schedule=data.get("schedule", SCHEDULE_VERSION), **told)


def _own_part(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the file that belong directly to the plan. They include unknown names, which are rejected
    later."""
    elsewhere = {"shape", "options", "faults", "work"}
    return {name: value for name, value in data.items() if name not in elsewhere | _RECORDED}


def _checked(kind: type, given: Any, where: str) -> dict[str, Any]:
    """Return the given fields of the class `kind`, if they exist and their values have the right types."""
    if not isinstance(given, dict):
        raise PlanFileError(f"{where} must be an object, and is {given!r}")
    known: Any = {item.name: item for item in fields(kind)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise PlanFileError(f"{where} has {name}, which is not known here")
        due = type(_default(known[name]))
        if due is tuple and type(value) is list and all(isinstance(each, str) for each in value):
            value = tuple(value)
        if type(value) is not due:
            raise PlanFileError(f"{where}: {name} must be {_words(due)}, and is {value!r}")
        if due is dict and not all(isinstance(each, str) for each in value.values()):
            raise PlanFileError(f"{where}: {name} must hold texts, and is {value!r}")
        values[name] = value
    return values


def _words(kind: type) -> str:
    words = {int: "a number", str: "a text", bool: "true or false", dict: "an object", tuple: "a list of texts"}
    return words.get(kind, kind.__name__)


def _faults(given: Any) -> Iterator[Fault]:
    if not isinstance(given, list):
        raise PlanFileError(f"faults must be a list of objects, and is {given!r}")
    for number, row in enumerate(given, start=1):
        where = f"fault {number}"
        if not isinstance(row, dict):
            raise PlanFileError(f"{where} must be an object with at_ms and kind, and is {row!r}")
        if type(row.get("at_ms")) is not int:
            raise PlanFileError(f"{where} needs an at_ms, a number: {row!r}")
        if row.get("kind") not in FAULT_KINDS:
            raise PlanFileError(f"{where} needs a kind, one of {', '.join(FAULT_KINDS)}: {row!r}")
        rest = {name: value for name, value in row.items() if name not in ("at_ms", "kind")}
        yield Fault(at_ms=row["at_ms"], kind=row["kind"], **_checked(Fault, rest, where))


def _work(given: Any) -> dict[str, tuple[PlannedOperation, ...]]:
    if not isinstance(given, dict) or not set(given) <= set(CLIENTS):
        raise PlanFileError(f"work must be an object of these clients: {', '.join(CLIENTS)}")
    for client, rows in given.items():
        if not isinstance(rows, list):
            raise PlanFileError(f"{client}: its work must be a list of operations, and is {rows!r}")
    return {client: tuple(_operation(client, row) for row in rows) for client, rows in given.items()}


def _operation(client: str, row: Any) -> PlannedOperation:
    if not isinstance(row, list) or [type(part) for part in row] != [int, str, int, int]:
        raise PlanFileError(f"{client}: an operation is [at_ms, verb, target, amount], and this is {row!r}")
    return PlannedOperation(*row)
