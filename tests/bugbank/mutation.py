"""What a mutation is, and how its twin is put into the code for one run.

Invariants: a twin is planted only into the source that it was written against (`originals`); everything is put back
after the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.bugbank.originals import Planting, noting

Schedule = Callable[[int], Iterable[str] | None]
"""A story under a seed. It raises `Violation`, or gives the ids of the checks that fired, the first one first."""


class Violation(AssertionError):
    """A check fired: its id, and the evidence."""

    def __init__(self, check: str, evidence: str = "") -> None:
        super().__init__(f"{check}: {evidence}")
        self.check = check


def require(check: str, condition: object, evidence: str = "") -> None:
    """The check `check` holds, or it fires."""
    if not condition:
        raise Violation(check, evidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """`expected` are the checks that the bank names for it. `swarm` is None where no random search draws what it
    needs: `no_swarm` says why."""

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
        """With the bug in the code."""
        with pytest.MonkeyPatch.context() as patch:
            self.plant(Planting(patch, self.id))
            yield

    def digests(self) -> dict[str, str]:
        """Those of the originals as they are now."""
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
    """Register the decorated function, which plants the bug."""

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
