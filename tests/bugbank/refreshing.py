"""`--digests`: record the present digests, and check whether twins with changed originals are still caught.

A mutation is judged by its directed schedule, a test by running it. A twin that is no longer caught keeps its old
digest, so that its test fails until it has been reviewed.
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
"""Modules that importing the bank has loaded, and that pytest must import itself."""
NO_PLUGINS = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
"""Options of pytest that switch plugins off. Hypothesis refuses to load its plugin when strategies exist already, as
they do once the bank is imported."""


def refresh(bank: Iterable[Mutation], tests: Iterable[str] = ()) -> int:
    """Record the digests that have changed, and print them. `tests` are tests that plant something without a recorded
    digest. Return 1 if a twin is not caught."""
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
        print(f"{planter}: NOT CAUGHT any more, so its old digests are kept: the twin no longer has the same bug")
    return 1 if missed else 0


def changes(known: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return a line for each digest that has changed."""
    lines = []
    for key in sorted(known.keys() | now.keys()):
        before, after = known.get(key), now.get(key)
        if after is None:
            lines.append(f"{key}: no bug is planted there any more")
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
    """Run these tests. Return the originals that they replaced, and the tests that failed or were not found."""
    listener = Listener()
    with noting() as noted:
        pytest.main([*tests, *NO_PLUGINS, "-W", ALREADY_IMPORTED], plugins=[listener])
    return noted, set(tests) - listener.passed | listener.failed


class Listener:
    """Records how each test ends. A test with parameters has passed only if all of its parameters have."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid.partition("[")[0]
        if report.failed:
            self.failed.add(test)
        elif report.when == "call" and report.passed:
            self.passed.add(test)
