"""`python -m kraft.sim`: the in-memory cluster, many seeds. One line per seed; a failing one with its evidence and the
command that repeats it. Exit code 0 if all passed, 1 if not.

    python -m kraft.sim --seeds 300 [--seed 1] [--seconds 30] [--crashes 3] [--jobs 2]
    python -m kraft.sim --cold-starts 200
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from functools import partial

from kraft.sim.cluster.cold_starts import ROUNDS_MAX, ColdStart, cold_start
from kraft.sim.cluster.faults import FaultSettings
from kraft.sim.cluster.many import in_processes, timed_run
from kraft.sim.cluster.run import RunResult, RunSettings

VOTERS = (3, 5)
LOG_LINES_SHOWN = 60
FAULT = "fault: "


def _arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kraft.sim", description="The in-memory cluster under faults.")
    parser.add_argument("--seeds", type=int, default=100, help="how many runs (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--seconds", type=float, default=30, help="virtual seconds of faults per run (default 30)")
    parser.add_argument("--crashes", type=int, default=3, help="crashes per run (default 3)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--cold-starts", type=int, metavar="N", help="instead: N cold starts of 3 and of 5 voters each")
    parser.add_argument("--log", action="store_true", help="show the last log lines of a run that fails")
    return parser.parse_args(given)


def run_seeds(options: argparse.Namespace) -> bool:
    """All runs. True if every one passed and every check saw something in one of them."""
    faults = FaultSettings(duration_ms=int(options.seconds * 1000), crashes=options.crashes)
    settings = RunSettings(faults=faults)
    seeds = range(options.seed, options.seed + options.seeds)
    failed: list[int] = []
    seen: Counter[str] = Counter()
    unseen: set[str] = set()
    virtual_ms = cpu_s = 0.0
    for result, took_s in in_processes(partial(timed_run, settings), seeds, options.jobs):
        virtual_ms += result.virtual_ms
        cpu_s += took_s
        seen.update(result.counters)
        unseen.update(result.unseen)
        _print_line(result, took_s)
        if result.findings:
            failed.append(result.seed)
            _print_failure(result, options)
    blind = sorted(check for check in unseen if not seen[check])
    speed = virtual_ms / 1000 / cpu_s
    print(f"{len(seeds) - len(failed)} of {len(seeds)} seeds passed; {speed:.1f} virtual seconds per CPU second")
    happened = {name.removeprefix(FAULT): count for name, count in seen.items() if name.startswith(FAULT)}
    print("faults: " + (", ".join(f"{name} {count}" for name, count in happened.items()) or "none but crashes"))
    print("seen: " + ", ".join(f"{name} {count}" for name, count in seen.items() if not name.startswith(FAULT)))
    if failed:
        print(f"failed: {failed}")
    if blind:
        print(f"unknown: nothing was seen for {', '.join(blind)}")
    return not failed and (not blind or len(seeds) < len(blind) * 10)


def _print_line(result: RunResult, took_s: float) -> None:
    facts = result.counters
    print(
        f"seed {result.seed:<6} {result.verdict:<8} {result.virtual_ms / 1000:6.1f} virtual s in {took_s:5.1f} CPU s, "
        f"{facts['crashes']} crashes, {facts['acknowledged']} acknowledged, well after {facts['whole_ms']} ms, "
        f"trace {result.trace_hash[:12]}",
        flush=True,
    )


def _print_failure(result: RunResult, options: argparse.Namespace) -> None:
    for line in result.history:
        print(f"    {line}")
    for finding in result.findings:
        print(f"  * {finding}")
    if options.log:
        for line in result.log_lines[-LOG_LINES_SHOWN:]:
            print(f"    | {line}")
    print(
        f"  again: python -m kraft.sim --seed {result.seed} --seeds 1 --seconds {options.seconds:g} "
        f"--crashes {options.crashes} --jobs 1 --log",
        flush=True,
    )


def run_cold_starts(options: argparse.Namespace) -> bool:
    """True if every start of every size took few enough rounds."""
    good = True
    for voters in VOTERS:
        seeds = range(options.seed, options.seed + options.cold_starts)
        starts: list[ColdStart] = []
        for start in in_processes(partial(cold_start, voters=voters), seeds, options.jobs):
            starts.append(start)
            if not start.is_good:
                good = False
                print(f"seed {start.seed}: {start.rounds} rounds, {start.took_ms} ms {' '.join(start.problems)}")
        rounds = sorted(Counter(start.rounds for start in starts).items())
        times = sorted(start.took_ms for start in starts)
        print(
            f"{voters} voters, {len(starts)} cold starts: rounds "
            + ", ".join(f"{count} x {number}" for number, count in rounds)
            + f" (at most {ROUNDS_MAX}); led after {times[len(times) // 2]} ms (median), {times[-1]} ms (worst)"
        )
    return good


def main(given: list[str]) -> int:
    options = _arguments(given)
    passed = run_cold_starts(options) if options.cold_starts else run_seeds(options)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
