"""What a mutation is, and how its twin is put into the code for one run.

Invariants: a twin is planted only into the source that it was written against (`digests.json` keeps a digest of each
original); everything is put back after the run.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DIGESTS = Path(__file__).parent / "digests.json"

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


class Rotten(Exception):
    """A twin's original has changed since the twin was written."""


class Planting:
    """Puts twins into the code. `recorded` are the originals' digests, by mutation and name."""

    def __init__(self, patch: pytest.MonkeyPatch, mutation_id: str, digests: dict[str, str] | None) -> None:
        self._patch = patch
        self._id = mutation_id
        self._digests = digests
        self.recorded: dict[str, str] = {}

    def replace(self, owner: Any, name: str, twin: Any, *also: Any) -> None:
        """Put `twin` in the place of `owner.name`, and of the same name in every other module that imported it."""
        original = inspect.getattr_static(owner, name)
        self._note(f"{getattr(owner, '__name__', owner)}.{name}", original)
        for place in (owner, *also):
            self._patch.setattr(place, name, twin)

    def put(self, table: dict[Any, Any], key: Any, twin: Any) -> None:
        """The same for a function that a table holds."""
        self._note(f"[{getattr(key, '__name__', key)}]", table[key])
        self._patch.setitem(table, key, twin)

    def _note(self, name: str, original: Any) -> None:
        key = f"{self._id} {name}"
        function = original.fget if isinstance(original, property) else getattr(original, "__func__", original)
        is_code = inspect.isfunction(function) or inspect.isclass(function)
        source = inspect.getsource(function) if is_code else repr(function)  # type: ignore[arg-type]
        self.recorded[key] = hashlib.sha256(source.encode()).hexdigest()[:8]
        if self._digests is not None and self._digests.get(key) != self.recorded[key]:
            raise Rotten(
                f"{key} has changed (digest {self.recorded[key]}, not {self._digests.get(key)}): look whether the twin "
                "still means the same bug, then run python -m tests.bugbank --digests"
            )


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
            self.plant(Planting(patch, self.id, read_digests()))
            yield

    def digests(self) -> dict[str, str]:
        """Those of the originals as they are now."""
        with pytest.MonkeyPatch.context() as patch:
            planting = Planting(patch, self.id, None)
            self.plant(planting)
        return planting.recorded


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


def read_digests() -> dict[str, str]:
    return dict(json.loads(DIGESTS.read_text())) if DIGESTS.exists() else {}


def write_digests(mutations: Iterable[Mutation]) -> None:
    """Note the originals as they are now."""
    found = {key: value for mutation in mutations for key, value in mutation.digests().items()}
    DIGESTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
