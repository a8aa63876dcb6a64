"""`python -m tests.docs.chaos_results FOLDER…`: write docs/chaos-results.json from the runs in the folders of
campaigns.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from kraft.sim.chaos.judge import RunVerdict
from kraft.sim.chaos.judge.verdict import verdict_from_json
from kraft.sim.chaos.report.summary import SummaryRow, summary_rows
from kraft.sim.chaos.run.run_folder import RunFolder, RunInfo
from kraft.sim.chaos.scenarios.scenario_file import builtin_scenarios

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "chaos-results.json"


def main(folders: list[str]) -> int:
    """Write the file; return 1 if there was no run."""
    runs = [run for folder in folders for run in _runs_in(Path(folder))]
    if not runs:
        print("no finished run in these folders", file=sys.stderr)
        return 1
    order = {scenario.name: number for number, scenario in enumerate(builtin_scenarios())}
    rows = sorted(summary_rows(runs), key=lambda row: (order.get(row.scenario, len(order)), row.cluster != "pykraft"))
    RESULTS.write_text(
        json.dumps({"versions": _versions(runs), "date": _date(runs), "rows": list(map(_row, rows))}, indent=1) + "\n"
    )
    print(f"{len(runs)} runs: {RESULTS}")
    return 0


def _runs_in(folder: Path) -> list[tuple[RunInfo, RunVerdict, str]]:
    found = (RunFolder(path.parent) for path in sorted(folder.glob("*/verdict.json")))
    return [(run.read_info(), verdict_from_json(run.verdict.read_text()), str(run.path)) for run in found]


def _row(row: SummaryRow) -> dict[str, Any]:
    return {
        "scenario": row.scenario,
        "cluster": row.cluster,
        "runs": len(row.runs),
        "verdicts": dict(row.verdicts),
        "gap_median_ms": row.gap_median_ms,
        "gap_worst_ms": row.gap_worst_ms,
        "topic_gap_median_ms": _topic_gap(row),
        "throughput": asdict(row.throughput),
    }


def _topic_gap(row: SummaryRow) -> float | None:
    """Return the longest time in which no topic could be created: the median of the runs."""
    found = [[gap.gap_ms for gap in verdict.gaps if gap.f == "create topic"] for _, verdict, _ in row.runs]
    longest = [max(gaps) for gaps in found if gaps]
    return median(longest) if longest else None


def _versions(runs: list[tuple[RunInfo, RunVerdict, str]]) -> dict[str, str]:
    return {name: version for info, _, _ in runs for name, version in info.versions.items()}


def _date(runs: list[tuple[RunInfo, RunVerdict, str]]) -> str:
    return max(info.started_at for info, _, _ in runs)[:10]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
