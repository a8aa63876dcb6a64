"""`python -m tests.bench`: measure our cluster, bare loops (the same I/O without a broker) and Apache Kafka in one run,
in turn, and write docs/benchmarks.md.

Nothing else should run on the machine during a measurement. --quick omits Kafka: it compares our figures with bare
loops, targets and alarm values. The exit code of --quick is 1 if a figure is past its alarm value in each of three
attempts, and the machine's present speed does not explain it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kraft.sim.chaos.hosts.leash import exit_on_signals
from tests.bench import lifecycles, metadata, page, sides, versus
from tests.bench.contest import KAFKA, OURS, Contest, Results
from tests.bench.own import Amounts, one_round
from tests.bench.spark import section
from tests.bench.table import Line, calmest_of, median_of, render

ROUNDS = 3
ATTEMPTS = 3
"""Number of consecutive attempts in which a figure must be past its alarm value for the alarm to count."""
OURS_WARM_SHARE = 0.1
"""Amount of warm-up work for our cluster, as a share of Kafka's. Our cluster needs only its files and connections
before measuring, while a JVM compiles for minutes."""
LARGE = "metadata-large"
LINES = (
    *(one.key for one in lifecycles.LIFECYCLES),
    *(one.key for one in (*versus.ONE_BROKER, *versus.THREE_BROKERS)),
    LARGE,
)


def quick(measure: Callable[[], list[Line]]) -> list[Line]:
    """Measure the lines of the quick benchmark. If a figure is past its alarm value, measure all lines again, up to
    ATTEMPTS times in total. The best figure of each line counts."""
    attempts: list[list[Line]] = []
    lines: list[Line] = []
    while len(attempts) < ATTEMPTS and (not attempts or any(line.is_alarming for line in lines)):
        if attempts:
            names = "; ".join(line.name for line in lines if line.is_alarming)
            print(f"attempt {len(attempts)} of {ATTEMPTS}: alarm at {names}: measured again", file=sys.stderr)
        attempts.append(measure())
        lines = [calmest_of(list(of_line)) for of_line in zip(*attempts, strict=True)]
    return lines


def medians(rounds: int, amounts: Amounts) -> list[Line]:
    """Return every line once. If it was measured in several rounds, its figure is their median."""
    found: dict[str, list[Line]] = defaultdict(list)
    for _ in range(rounds):
        for line in one_round(amounts):
            found[line.name].append(line)
    return [median_of(lines) for lines in found.values()]


def compare(wanted: Sequence[str], names: list[str], rounds: int, amounts: Amounts) -> Results:
    """Measure the requested lines on our cluster and on Apache Kafka."""
    results = Results()
    lifecycles.play([one for one in lifecycles.LIFECYCLES if one.key in wanted], names, rounds, results)
    _on_clusters(_chosen(versus.ONE_BROKER, wanted), True, names, rounds, amounts, results)
    _on_clusters(_chosen(versus.THREE_BROKERS, wanted), False, names, rounds, amounts, results)
    if LARGE in wanted and OURS in names:
        with results.noting_failure(LARGE):
            for rows, figures in metadata.large_figures():
                results.add(rows, OURS, figures)
    return results


def _chosen(contests: Iterable[Contest], wanted: Sequence[str]) -> list[Contest]:
    return [one for one in contests if one.key in wanted]


def _on_clusters(
    contests: list[Contest], is_single: bool, names: list[str], rounds: int, amounts: Amounts, results: Results
) -> None:
    if not contests:
        return
    kind = "one node" if is_single else "three brokers"
    rows = [row for contest in contests for row in contest.rows]
    with results.noting_failure(kind, rows), sides.both(names, is_single=is_single) as pair:
        for side in pair:
            with side.awake() as cluster:
                versus.warm(cluster, amounts if side.name == KAFKA else amounts.scaled(OURS_WARM_SHARE))
        sides.play(contests, pair, amounts, rounds, results)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without Kafka; two minutes, six if an alarm stays")
    parser.add_argument("--runs", type=int, help=f"rounds; medians are shown (default: {ROUNDS}, quick: 1)")
    parser.add_argument("--only", action="append", choices=LINES, metavar="LINE", help=f"one of: {', '.join(LINES)}")
    parser.add_argument("--side", choices=(OURS, KAFKA), help="this side alone")
    parser.add_argument("--share", type=float, default=1.0, help="so much of each line's work, to see that it runs")
    parser.add_argument("--page", type=Path, help="where the page goes; default: docs/benchmarks.md if all is measured")
    parser.add_argument(
        "--keep", type=Path, help="keep the figures here; what is there of other lines goes onto the page too"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON value (quick)")
    arguments = parser.parse_args(argv)
    amounts = Amounts() if arguments.share == 1 else Amounts().scaled(arguments.share)
    if arguments.quick and (arguments.only or arguments.side or arguments.page or arguments.keep):
        parser.error("--quick measures its own lines, of ours alone: leave --only, --side, --page and --keep out")
    kept = json.loads(arguments.keep.read_text()) if arguments.keep and arguments.keep.exists() else None
    if kept and kept["share"] != arguments.share:
        parser.error(
            f"--keep {arguments.keep} has figures of {kept['share']:.0%} of each line's work, and --share asks for"
            f" {arguments.share:.0%}: they do not go onto one page; name another file"
        )
    if arguments.quick:
        lines = quick(lambda: medians(arguments.runs or 1, amounts))
        print(json.dumps([line.as_json() for line in lines]) if arguments.json else render(lines))
        return int(any(line.is_alarming for line in lines))
    rounds, names = arguments.runs or ROUNDS, [arguments.side] if arguments.side else [OURS, KAFKA]
    results = compare(arguments.only or LINES, names, rounds, amounts)
    if arguments.keep:
        if kept:
            results.take_over(kept)
        arguments.keep.write_text(json.dumps(results.as_json(arguments.share), indent=1))
    print(results.render())
    is_whole = not (arguments.only or arguments.side) and arguments.share == 1
    if arguments.page or is_whole:
        page.write(results, rounds, arguments.page or page.PAGE, share=arguments.share)
        if not arguments.page:
            section.restore()
    return int(bool(results.failures))


if __name__ == "__main__":
    exit_on_signals()
    sys.exit(main())
