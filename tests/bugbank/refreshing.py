"""`--digests`: the digests of now, and whether the twins whose originals have changed are still caught.

A mutation is judged by its directed schedule, a test by running it. What is not caught any more keeps its old digest,
so that its test stays red until somebody has looked.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.bugbank.campaign import outcome_of, unexpected
from tests.bugbank.mutation import Mutation
from tests.bugbank.originals import digest_now, is_test, noting, planter_of, read_digests, write_digests

ROOT = Path(__file__).parents[2]
ALREADY_IMPORTED = "ignore::pytest.PytestAssertRewriteWarning"
"""The bank has imported what pytest would like to be the first to import."""


def refresh(bank: Iterable[Mutation], tests: Iterable[str] = ()) -> int:
    """Note what has changed, and say so; `tests` plant something that was never noted. 1 if a twin is not caught."""
    known = read_digests()
    now = {key: digest for key, digest in known.items() if is_test(planter_of(key)) and exists(planter_of(key))}
    stale_tests = {planter_of(key) for key, digest in now.items() if digest_now(key) != digest} | set(tests)
    now = {key: digest for key, digest in now.items() if planter_of(key) not in stale_tests}
    missed = []
    for mutation in bank:
        found = mutation.digests()
        if any(known.get(key) != digest for key, digest in found.items()) and not is_caught(mutation):
            missed.append(mutation.id)
            found = of_planter(known, mutation.id)
        now |= found
    if stale_tests:
        noted, failed = run_tests(sorted(stale_tests))
        missed += sorted(failed)
        for planter in stale_tests:
            now |= of_planter(known if planter in failed else noted, planter)
    write_digests(now)
    for line in changes(known, now):
        print(line)
    for planter in missed:
        print(f"{planter}: NOT CAUGHT any more, so its old digests stay: the twin does not mean the same bug")
    return 1 if missed else 0


def changes(known: dict[str, str], now: dict[str, str]) -> list[str]:
    """A line for each digest that is another."""
    lines = []
    for key in sorted(known.keys() | now.keys()):
        before, after = known.get(key), now.get(key)
        if after is None:
            lines.append(f"{key}: nobody plants there any more")
        elif before is None:
            lines.append(f"{key}: new, {after}; caught")
        elif before != after:
            lines.append(f"{key}: {before} -> {after}; still caught")
    return lines


def of_planter(digests: dict[str, str], planter: str) -> dict[str, str]:
    return {key: digest for key, digest in digests.items() if planter_of(key) == planter}


def exists(test: str) -> bool:
    file, _, name = test.partition("::")
    return (ROOT / file).exists() and f"def {name}(" in (ROOT / file).read_text()


def is_caught(mutation: Mutation) -> bool:
    with noting():
        clean, broken = outcome_of(mutation)
    return not clean.checks and broken.is_caught and not unexpected(mutation, broken.checks)


def run_tests(tests: list[str]) -> tuple[dict[str, str], set[str]]:
    """Run these; what they planted into, and those of them that failed, or that are not found."""
    listener = Listener()
    with noting() as noted:
        pytest.main([*tests, "-p", "no:cacheprovider", "-W", ALREADY_IMPORTED], plugins=[listener])
    return noted, set(tests) - listener.passed | listener.failed


class Listener:
    """Hears how each test ends: a test with parameters has passed if all of them have."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid.partition("[")[0]
        if report.failed:
            self.failed.add(test)
        elif report.when == "call" and report.passed:
            self.passed.add(test)
