"""Run `python -m tests.bugbank [--only B01,B06] [--ranges N] [--fresh] [--directed] [--digests [TEST …]]`, or `--matrix
[--seeds N]`.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bugbank.bank import BANK
from tests.bugbank.campaign import Campaign
from tests.bugbank.matrix import SEEDS, Matrix, is_of_whole_nodes, matrix_of, with_matrix
from tests.bugbank.matrix import render as render_matrix
from tests.bugbank.mutation import Mutation
from tests.bugbank.page import PAGE, render
from tests.bugbank.refreshing import refresh
from tests.sim.cluster.test_rules_of_failure_detection import CLAUSES


def main() -> int:
    """Run the campaign. Return 0 if all bugs were caught. Return 1 if a mutation, or a bug planted against a rule of
    fast failure detection, was missed, or if the unchanged code failed."""
    parser = argparse.ArgumentParser(prog="make bugbank", description="Plant every bug of the bank and catch it.")
    parser.add_argument("--only", default="", help="ids, separated by commas; writes no page")
    parser.add_argument("--ranges", type=int, default=1, help="seed ranges per mutation")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier campaign found on the same code")
    parser.add_argument("--directed", action="store_true", help="the directed schedules alone; writes no page")
    parser.add_argument(
        "--matrix", action="store_true", help="which checks of whole clusters catch which bug; written to the page"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of each row of the matrix")
    parser.add_argument(
        "--digests",
        nargs="*",
        metavar="TEST",
        help="check whether twins whose originals have changed are caught, record the present originals, and stop; "
        "TEST: one that plants something new, such as tests/raft/test_planted_bugs.py::"
        "test_checks_catch_a_record_of_an_older_epoch_committed_by_counting_replicas",
    )
    options = parser.parse_args()
    if options.digests is not None:
        return refresh(BANK, options.digests)
    wanted = {one for one in options.only.split(",") if one}
    chosen = [mutation for mutation in BANK if not wanted or mutation.id in wanted]
    if options.matrix:
        return write_matrix(chosen, options.seeds, fresh=options.fresh, is_all=not wanted)
    if options.directed:
        chosen = [dataclasses.replace(mutation, swarm=None) for mutation in chosen]
    verdicts = Campaign(ranges=options.ranges, fresh=options.fresh or options.directed).run(chosen)
    if not wanted and not options.directed:
        PAGE.write_text(with_matrix(render(BANK, verdicts), matrix_of(PAGE.read_text())))
        print(f"written: {PAGE.name}")
    missed = [verdict.id for verdict in verdicts if not verdict.is_caught]
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} caught" + (f", MISSED: {missed}" if missed else ""))
    are_clauses_kept = bool(wanted) or options.directed or catch_clauses()
    return 0 if are_clauses_kept and not missed else 1


def catch_clauses() -> bool:
    """Run the tests of fast failure detection with the bug of each rule. Return whether they catch all. pytest prints
    how many bugs there were, and how long it took."""
    print(f"the {len(CLAUSES)} rules of fast failure detection:", flush=True)
    files = sorted({file for bugs in CLAUSES.values() for file, _ in bugs})
    command = [sys.executable, "-m", "pytest", "-q", *(f"tests/{file}" for file in files)]
    return subprocess.run(command, check=False, cwd=Path(__file__).parents[2]).returncode == 0


def write_matrix(chosen: Sequence[Mutation], seeds: int, *, fresh: bool, is_all: bool) -> int:
    """Write the kill matrix into the page. Return 1 if a mutation has no verdict."""
    rows = Matrix(fresh=fresh).run([mutation for mutation in chosen if is_of_whole_nodes(mutation)], seeds)
    if is_all:
        PAGE.write_text(with_matrix(PAGE.read_text(), render_matrix(BANK, rows, seeds)))
        print(f"written: {PAGE.name}")
    return 1 if any(row.alarm for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
