"""A mutation, and how its twin replaces code for one run.

Invariants: a twin is planted only if the source that it replaces is the one that it was written against (`originals`).
All code is restored after the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.bugbank.originals import Planting, noting

Schedule = Callable[[int], Iterable[str] | None]
"""A schedule, as a function of a seed. It raises `Violation`, or returns the ids of the checks that failed, in the
order of the failures."""


class Violation(AssertionError):
    """A check failed. Has the id of the check and the evidence."""

    def __init__(self, check: str, evidence: str = "") -> None:
        super().__init__(f"{check}: {evidence}")
        self.check = check


def require(check: str, condition: object, evidence: str = "") -> None:
    """Raise `Violation` of `check` if the condition is false."""
    if not condition:
        raise Violation(check, evidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A bug of the bank. `expected` are the checks that the bank names for it. `swarm` is None if no random search can
    find the bug; `no_swarm` is then the reason."""

    id: str
    title: str
    part: str
    plant: Callable[[Planting], None]
    directed: Schedule
    swarm: Schedule | None
    expected: tuple[str, ...]
    no_swarm: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plant the bug in the code while the context is open."""
        with pytest.MonkeyPatch.context() as patch:
            self.plant(Planting(patch, self.id))
            yield

    def digests(self) -> dict[str, str]:
        """Return the present digests of the originals that the twins replace."""
        with noting() as noted, self.planted():
            return noted


MUTATIONS: list[Mutation] = []


def bug(
    mutation_id: str,
    title: str,
    *,
    part: str,
    expected: tuple[str, ...],
    directed: Schedule,
    swarm: Schedule | None = None,
    no_swarm: str = "",
) -> Callable[[Callable[[Planting], None]], Callable[[Planting], None]]:
    """Register the decorated function, which plants the bug, as a mutation."""

    def register(plant: Callable[[Planting], None]) -> Callable[[Planting], None]:
        MUTATIONS.append(
            Mutation(
                id=mutation_id,
                title=title,
                part=part,
                plant=plant,
                directed=directed,
                swarm=swarm,
                expected=expected,
                no_swarm=no_swarm,
            )
        )
        return plant

    return register
