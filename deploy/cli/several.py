"""A verb that was given several names: each is dealt with and told of, also when one of them fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import typer

from kraft.deploy.cli.output import EXIT_FAILED, CommandFailed, print_json, warn

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What became of one name: `value`, or `problem`."""

    name: str
    value: T | None
    problem: CommandFailed | None


async def attempt_each(names: Sequence[str], work: Callable[[str], Awaitable[T]]) -> list[Outcome[T]]:
    """Do it with each name in turn. What the cluster refuses is an outcome, and so is CommandFailed; what ends the
    connection is raised."""
    from kraft.client import KafkaError
    from kraft.deploy.cli.admin import explained

    outcomes: list[Outcome[T]] = []
    for name in names:
        try:
            outcomes.append(Outcome(name, await work(name), None))
        except (KafkaError, CommandFailed) as problem:
            outcomes.append(Outcome(name, None, explained(problem)))
    return outcomes


def tell(
    outcomes: Sequence[Outcome[T]],
    what: str,
    as_json: bool,
    row: Callable[[str, T], Mapping[str, Any]],
    line: Callable[[str, T], str],
    *,
    as_list: bool = False,
) -> None:
    """Print what was done with each `what`, as text or as JSON, and what was not on standard error; then end with the
    exit code of the failures, if there were any. A single name is one JSON object, several are a list; a list in any
    case where nobody named them (`as_list`)."""
    failed = [one.problem for one in outcomes if one.problem is not None]
    if failed and len(outcomes) == 1 and not as_list:
        raise failed[0]
    rows: list[Mapping[str, Any]] = []
    for one in outcomes:
        if one.problem is not None:
            rows.append({what: one.name, "error": str(one.problem)})
            warn(f"kraft: {one.problem}")
        else:
            value: Any = one.value
            rows.append(row(one.name, value))
            if not as_json:
                print(line(one.name, value))
    if as_json:
        print_json(rows[0] if len(rows) == 1 and not as_list else rows)
    if failed:
        raise typer.Exit(exit_code(failed))


def exit_code(failed: Sequence[CommandFailed]) -> int:
    """How a verb ends of which at least one part failed: as they all did, else by the code for failures."""
    codes = {problem.code for problem in failed}
    return codes.pop() if len(codes) == 1 else EXIT_FAILED
