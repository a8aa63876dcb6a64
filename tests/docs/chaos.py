"""docs/chaos.md: how to run scenarios and read their results, the list of scenarios, and measured results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kraft.sim.chaos.run.simulated_run import why_not_simulated
from kraft.sim.chaos.scenarios.fault_tables import AMOUNTS, CUTS, KINDS, LASTING, RETURNING, WAY_KEYS
from kraft.sim.chaos.scenarios.scenario_file import builtin_scenarios
from kraft.sim.nemesis.plan import WAY_KINDS

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "chaos-results.json"
TEXT = Path(__file__).with_name("chaos.md")
"""Text of the page, in which tables replace `{{scenarios}}`, `{{results}}` and `{{kinds}}`."""

WORDS = {
    "kill": "`kill -9`; the node is started again",
    "power loss": "the host loses power (in virtual time only)",
    "clean stop": "SIGTERM; the node is started again",
    "rolling restart": "each node in turn stops cleanly and starts again, the next one when all replicas are in sync",
    "stumble": "killed again and again while it starts",
    "pause": "SIGSTOP, and SIGCONT at the end",
    "clock": "the node's wall clock is stepped (libfaketime)",
    "cut": "nothing passes between two nodes",
    "cut one way": "traffic from `node` to `other` does not arrive; the other direction works",
    "isolate": "a node is cut off from every other node; clients still reach it",
    "halves": "the nodes are split into two halves",
    "bridge": "the other nodes form two halves; only `node` reaches both",
    "ring": "each node reaches only its two neighbours in a ring",
    "controllers cut off": "brokers and controllers do not reach each other",
    "clients cut off": "clients do not reach a node, or any",
    "latency": "traffic from `node` to `other` is delayed; without `other`, all links of the node in both directions",
    "slow link": "traffic from `node` to `other` has a low rate",
    "byte limit": "each connection ends after so many bytes, even within a frame",
    "slicer": "traffic from `node` arrives in pieces of so many bytes, with a pause after each (on processes only)",
    "slow close": "when one end closes a connection, the other end sees it with this delay (on processes only)",
    "timeout": "bytes are dropped, and each connection ends after so long; 0: when the fault ends (on processes only)",
    "reset peer": "each connection is reset so long after its next bytes, which are lost (on processes only)",
    "reset": "the connections between two nodes end at once",
    "stall": "bytes between two nodes wait (in virtual time only)",
    "slow disk": "each sync takes 0.8 s longer",
    "failing sync": "each sync fails",
    "full disk": "the broker's own small file system is full",
    "empty disk": "killed; all of its data is removed before it starts again",
}
"""Description of each kind of fault."""


def render_chaos() -> str:
    """Render the whole page."""
    text = TEXT.read_text()
    for name, rows in (("scenarios", _scenarios()), ("kinds", _kinds()), ("results", _results())):
        text = text.replace("{{" + name + "}}", "\n".join(rows))
    return text


def _scenarios() -> Iterator[str]:
    yield from _head("Scenario", "What happens", "In virtual time")
    for scenario in builtin_scenarios():
        name = f"`{scenario.name}`{' (core)' if scenario.is_core else ''}"
        yield f"| {name} | {scenario.about} | {'no' if why_not_simulated(scenario) else 'yes'} |"


def _kinds() -> Iterator[str]:
    yield from _head("Kind", "What it does", "Keys")
    for kind in KINDS:
        yield f"| `{kind}` | {WORDS[kind]} | {', '.join(f'`{key}`' for key in _keys_of(kind))} |"


def _keys_of(kind: str) -> Iterator[str]:
    yield from (key for key, (of, _) in AMOUNTS.items() if of == kind)
    yield from ["lasts_s"] * (kind in LASTING) + ["back_s"] * (kind in RETURNING) + ["manner"] * (kind in CUTS)
    yield from WAY_KEYS if kind in WAY_KINDS else ()


def _results() -> Iterator[str]:
    if not RESULTS.exists():
        yield "Nothing was measured yet."
        return
    results = json.loads(RESULTS.read_text())
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    yield f"Measured {results['date']}: {versions}."
    yield ""
    yield from _head("Scenario", "Cluster", "Valid", "Gap, median", "Gap, worst", "Records/s before", "during", "after")
    for row in results["rows"]:
        yield "| " + " | ".join(_cells(row)) + " |"


def _cells(row: Mapping[str, Any]) -> Iterator[str]:
    verdicts, throughput = row["verdicts"], row["throughput"]
    others = [f"{verdicts[kind]} {kind}" for kind in ("invalid", "unknown") if verdicts.get(kind)]
    yield f"`{row['scenario']}`"
    yield "Apache Kafka" if row["cluster"] == "kafka" else row["cluster"]
    yield ", ".join([f"{verdicts.get('valid', 0)} of {row['runs']}", *others])
    yield from (_seconds(row[name]) for name in ("gap_median_ms", "gap_worst_ms"))
    yield from (_rate(throughput[name]) for name in ("before", "during", "after"))


def _seconds(value_ms: float | None) -> str:
    return "–" if value_ms is None else f"{value_ms / 1000:.2f} s"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _head(*names: str) -> Iterator[str]:
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
