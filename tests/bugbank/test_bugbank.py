"""The bank is complete, its twins fit the code, and directed schedules catch the mutations of the cores."""

from __future__ import annotations

import pytest

from tests.bugbank import originals
from tests.bugbank.bank import BANK, EVERY_ID, NOT_OPEN
from tests.bugbank.campaign import outcome_of, unexpected
from tests.bugbank.judging import judge
from tests.bugbank.mutation import Mutation
from tests.bugbank.originals import OriginalChanged, digest_now, is_test, planter_of, read_digests
from tests.bugbank.page import PAGE
from tests.bugbank.refreshing import exists
from tests.sim.cluster.test_rules_of_failure_detection import CLAUSES

QUICK = [
    mutation
    for mutation in BANK
    if mutation.part != "Harness" and mutation.directed.__module__ != "tests.bugbank.cluster_schedules"
]


def named(mutation: Mutation) -> str:
    return mutation.id


def test_every_number_of_the_bug_bank_has_a_mutation_or_a_reason_why_not() -> None:
    numbers = {mutation.id[:3] for mutation in BANK}
    assert numbers | set(NOT_OPEN) == set(EVERY_ID)
    assert not numbers & set(NOT_OPEN)
    assert len({mutation.id for mutation in BANK}) == len(BANK)


def test_every_mutation_of_the_bug_bank_has_a_swarm_of_seeds_or_a_reason_why_not() -> None:
    assert [mutation.id for mutation in BANK if (mutation.swarm is None) != bool(mutation.no_swarm)] == []


def test_every_twin_of_the_bug_bank_was_written_against_the_present_source_of_its_original() -> None:
    """If this test fails, check whether the twin is still the same bug, and then run python -m tests.bugbank
    --digests."""
    known = read_digests()
    tests = {key for key in known if is_test(planter_of(key))}
    found = {key: value for mutation in BANK for key, value in mutation.digests().items()}
    found |= {key: digest_now(key) for key in tests}
    assert {key: value for key, value in found.items() if known.get(key) != value} == {}
    assert set(known) == set(found)
    assert [key for key in tests if not exists(planter_of(key))] == []


@pytest.mark.parametrize("mutation", QUICK, ids=named)
def test_a_mutation_of_a_core_is_caught_by_its_directed_schedule(mutation: Mutation) -> None:
    clean, broken = outcome_of(mutation)
    assert clean.checks == (), clean.evidence
    assert broken.is_caught, broken
    assert broken.checks[0] not in ("N1", "L"), f"a sharper check must name this: {broken.evidence}"
    assert not unexpected(mutation, broken.checks)


@pytest.mark.parametrize("mutation", [one for one in BANK if one.id in ("B02", "B41")], ids=named)
def test_a_mutation_of_whole_nodes_is_caught_by_its_directed_schedule(mutation: Mutation) -> None:
    clean, broken = outcome_of(mutation)
    assert (clean.checks, broken.is_caught) == ((), True), (clean, broken)
    assert not unexpected(mutation, broken.checks)


def test_a_twin_whose_original_has_changed_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    mutation = BANK[0]
    stale = dict.fromkeys(mutation.digests(), "00000000")
    monkeypatch.setattr(originals, "read_digests", lambda: stale)
    with pytest.raises(OriginalChanged, match="look whether the twin still means the same bug"), mutation.planted():
        pass


def test_an_exception_of_a_broken_twin_does_not_count_as_catching_the_bug() -> None:
    def schedule(seed: int) -> None:
        raise AttributeError("no such thing")

    outcome = judge(schedule, 1)
    assert (outcome.checks, outcome.is_caught) == (("broken",), False)


def test_a_failing_check_that_the_bank_does_not_name_does_not_count_as_catching_the_bug() -> None:
    mutation = BANK[0]
    assert not unexpected(mutation, ())
    assert not unexpected(mutation, ("D14", mutation.expected[-1]))
    assert "D14 fired and none of R9" in unexpected(mutation, ("D14",))


def test_the_bugbank_page_lists_each_mutation_and_each_rule_of_failure_detection() -> None:
    """A campaign writes the page, so a mutation that was added later is missing until the next campaign."""
    text = PAGE.read_text()
    assert [mutation.id for mutation in BANK if f"| {mutation.id} | {mutation.title} |" not in text] == []
    assert [clause for clause in CLAUSES if f"| {clause} |" not in text] == []
    assert [number for number in NOT_OPEN if f"- {number}: " not in text] == []


def test_planting_a_twin_restores_the_original_code_after_the_run() -> None:
    before = {key: value for mutation in BANK for key, value in mutation.digests().items()}
    for mutation in BANK:
        with mutation.planted():
            pass
    assert {key: value for mutation in BANK for key, value in mutation.digests().items()} == before
