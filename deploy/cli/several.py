"""Commands that take several names: each name is processed and reported, even if another one fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import typer

from kraft.deploy.cli.output import EXIT_FAILED, CommandFailed, print_json, warn

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NameResult(Generic[T]):
    """Result for one name: a `value`, or a `problem`."""

    name: str
    value: T | None
    problem: CommandFailed | None


async def attempt_each(names: Sequence[str], work: Callable[[str], Awaitable[T]]) -> list[NameResult[T]]:
    """Run `work` for each name, one after the other. If it raises CommandFailed or an error of the cluster, that error
    is the result of the name. A lost connection is raised to the caller."""
    from kraft.client import KafkaError
    from kraft.deploy.cli.admin import to_command_failed

    outcomes: list[NameResult[T]] = []
    for name in names:
        try:
            outcomes.append(NameResult(name, await work(name), None))
        except (KafkaError, CommandFailed) as problem:
            outcomes.append(NameResult(name, None, to_command_failed(problem)))
    return outcomes


def report_results(
    outcomes: Sequence[NameResult[T]],
    what: str,
    as_json: bool,
    row: Callable[[str, T], Mapping[str, Any]],
    line: Callable[[str, T], str],
    *,
    as_list: bool = False,
) -> None:
    """Print results as text or JSON, and failures on standard error. `what` is the noun for a name, such as "topic".
    Exit with the code of the failures, if there were any. The JSON is one object for a single name, and a list for
    several. With `as_list` it is always a list, because the user has named no single thing."""
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
    """Return the exit code of a command in which names have failed: the code that all failures share, else the general
    code for failures."""
    codes = {problem.code for problem in failed}
    return codes.pop() if len(codes) == 1 else EXIT_FAILED
