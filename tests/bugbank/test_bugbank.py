"""The bank is whole, its twins fit the code, and the mutations of the cores are caught by their directed schedules."""

from __future__ import annotations

import pytest

from tests.bugbank import originals
from tests.bugbank.bank import BANK, EVERY_ID, NOT_OPEN
from tests.bugbank.campaign import outcome_of, unexpected
from tests.bugbank.judging import judge
from tests.bugbank.mutation import Mutation
from tests.bugbank.originals import Rotten, digest_now, is_test, planter_of, read_digests
from tests.bugbank.page import PAGE
from tests.bugbank.refreshing import exists
from tests.sim.cluster.test_clauses_of_failure_detection import CLAUSES

QUICK = [
    mutation
    for mutation in BANK
    if mutation.part != "Harness" and mutation.directed.__module__ != "tests.bugbank.cluster_schedules"
]


def named(mutation: Mutation) -> str:
    return mutation.id


def test_every_number_of_the_bank_has_a_mutation_or_a_reason() -> None:
    numbers = {mutation.id[:3] for mutation in BANK}
    assert numbers | set(NOT_OPEN) == set(EVERY_ID)
    assert not numbers & set(NOT_OPEN)
    assert len({mutation.id for mutation in BANK}) == len(BANK)


def test_every_mutation_has_a_swarm_or_a_reason_why_not() -> None:
    assert [mutation.id for mutation in BANK if (mutation.swarm is None) != bool(mutation.no_swarm)] == []


def test_every_twin_was_written_against_the_source_of_now() -> None:
    """Else look whether it still means the same bug, then run python -m tests.bugbank --digests."""
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


def test_a_twin_whose_original_has_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mutation = BANK[0]
    stale = dict.fromkeys(mutation.digests(), "00000000")
    monkeypatch.setattr(originals, "read_digests", lambda: stale)
    with pytest.raises(Rotten, match="look whether the twin still means the same bug"), mutation.planted():
        pass


def test_what_a_broken_twin_raises_is_no_catch() -> None:
    def schedule(seed: int) -> None:
        raise AttributeError("no such thing")

    outcome = judge(schedule, 1)
    assert (outcome.checks, outcome.is_caught) == (("broken",), False)


def test_a_check_that_nobody_expects_is_no_catch() -> None:
    mutation = BANK[0]
    assert not unexpected(mutation, ())
    assert not unexpected(mutation, ("D14", mutation.expected[-1]))
    assert "D14 fired and none of R9" in unexpected(mutation, ("D14",))


def test_the_page_says_of_each_mutation_and_each_clause_where_it_is_caught() -> None:
    """It is written by a campaign; a mutation that came later is missing until the next one."""
    text = PAGE.read_text()
    assert [mutation.id for mutation in BANK if f"| {mutation.id} | {mutation.title} |" not in text] == []
    assert [clause for clause in CLAUSES if f"| {clause} |" not in text] == []
    assert [number for number in NOT_OPEN if f"- {number}: " not in text] == []


def test_everything_is_put_back_after_a_run() -> None:
    before = {key: value for mutation in BANK for key, value in mutation.digests().items()}
    for mutation in BANK:
        with mutation.planted():
            pass
    assert {key: value for mutation in BANK for key, value in mutation.digests().items()} == before
