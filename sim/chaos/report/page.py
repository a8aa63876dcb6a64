"""The pages: one of a run, one of a campaign. Each is a single file that contains its style, script and picture."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kraft.sim.chaos.history import HistoryEvent
from kraft.sim.chaos.judge import INVALID, UNKNOWN, VALID, RunVerdict
from kraft.sim.chaos.judge.anomaly_words import MEANINGS
from kraft.sim.chaos.judge.availability import BEFORE
from kraft.sim.chaos.report import formats
from kraft.sim.chaos.report.colours import DARK, LIGHT, NODES
from kraft.sim.chaos.report.excerpt import excerpt_of
from kraft.sim.chaos.report.extra import import_extra
from kraft.sim.chaos.report.gap_plot import gap_plot_svg
from kraft.sim.chaos.report.operations import OUTCOMES
from kraft.sim.chaos.report.panels import points_data
from kraft.sim.chaos.report.picture import draw_run
from kraft.sim.chaos.report.run_data import RunData
from kraft.sim.chaos.report.summary import Run, summary_rows, throughput_of
from kraft.sim.chaos.report.timeline import timeline_svg
from kraft.sim.chaos.run.run_folder import ClusterSample, FaultRecord, OutputLine, RunFolder, RunInfo

TEMPLATES = Path(__file__).with_name("templates")
OUTPUT_LINES_MAX = 600
"""Maximum number of the application's output lines on the page: half of them from the begin, half from the end."""
OUTPUT_LINE_CHARACTERS_MAX = 500
ERRORS_MAX = 200
ANOMALIES_SHOWN_MAX = 200
EVIDENCE_CHARACTERS_MAX = 600


def write_report(folder: RunFolder, verdict: RunVerdict) -> None:
    """Write the page and the picture of the run in this folder. ValueError if the folder cannot be read, MissingExtra
    if jinja2 or matplotlib is not installed."""
    info, history, faults = folder.read_info(), folder.read_history(), folder.read_faults()
    samples, output = folder.read_samples(), folder.read_output()
    folder.report.write_text(render_run(info, verdict, history, faults, samples, output), encoding="utf-8")
    draw_run(info, verdict, history, faults, samples, output, folder.picture)


def render_run(
    info: RunInfo,
    verdict: RunVerdict,
    history: Sequence[HistoryEvent],
    faults: Sequence[FaultRecord],
    samples: Sequence[ClusterSample],
    output: Sequence[OutputLine],
) -> str:
    """Render the page of one run as self-contained HTML. Raises MissingExtra."""
    run = RunData(info, verdict, history, faults, samples, output)
    excerpt = excerpt_of(history, run.proving)
    return _render(
        "run.html.j2",
        run=run,
        info=info,
        verdict=verdict,
        timeline=_safe(timeline_svg(run)) if run.is_drawable else "",
        points=points_data(run),
        figures=_figures(run),
        throughput=throughput_of(info, verdict),
        excerpt=excerpt,
        linked=frozenset(line.index for line in excerpt.lines if line.is_proof),
        anomalies=verdict.anomalies[:ANOMALIES_SHOWN_MAX],
        errors=sorted(verdict.errors.items(), key=lambda each: (-each[1], each[0]))[:ERRORS_MAX],
        checked=_checked(verdict),
        output_head=output[: OUTPUT_LINES_MAX // 2] if len(output) > OUTPUT_LINES_MAX else output,
        output_tail=output[-(OUTPUT_LINES_MAX // 2) :] if len(output) > OUTPUT_LINES_MAX else (),
        output_characters=OUTPUT_LINE_CHARACTERS_MAX,
        evidence_characters=EVIDENCE_CHARACTERS_MAX,
        outcomes=[outcome.value for outcome in OUTCOMES],
    )


def render_summary(runs: Sequence[Run]) -> str:
    """Render the page of a campaign: each run with its verdict and the relative link to its own page. Raises
    MissingExtra."""
    rows = summary_rows(runs)
    verdicts = [verdict.verdict for _, verdict, _ in runs]
    return _render(
        "summary.html.j2",
        runs=runs,
        rows=rows,
        plot=_safe(gap_plot_svg(rows)),
        totals={verdict: verdicts.count(verdict) for verdict in (VALID, INVALID, UNKNOWN)},
        worst=INVALID if INVALID in verdicts else UNKNOWN if UNKNOWN in verdicts or not verdicts else VALID,
        throughput_of=throughput_of,
    )


def _figures(run: RunData) -> list[tuple[str, str, str]]:
    """Return the few key figures under the verdict: name, number, and what the number is based on."""
    verdict = run.verdict
    gap = formats.longest_gap(verdict.gaps)
    seen = sum(effect.is_seen for effect in verdict.effects)
    slow = [phase for phase in verdict.phases if phase.p99_ms is not None and phase.f == "send"]
    calm = next((phase for phase in slow if phase.phase == BEFORE), None)
    hits = [phase for phase in slow if phase.phase.startswith("fault")]
    hit = max(hits, key=lambda phase: phase.p99_ms or 0.0, default=None)
    total = {name: sum(of.get(name, 0) for of in verdict.counts.values()) for name in ("ok", "fail", "info")}
    found = [
        ("Operations", f"{sum(total.values()):,}", ", ".join(f"{count:,} {name}" for name, count in total.items())),
        ("Faults that took effect", f"{seen} of {len(run.faults)}", "by evidence, in the table of faults"),
        ("Longest gap", formats.format_gap(gap), f"in {gap.f}, after fault {gap.fault + 1}" if gap else "no gap"),
    ]
    if calm and hit:
        about = f"{hit.phase}; {formats.format_ms(calm.p99_ms)} before faults"
        found.append(("p99 of sends", formats.format_ms(hit.p99_ms), about))
    return found


def _checked(verdict: RunVerdict) -> list[tuple[str, str, int]]:
    """Return each invariant, the anomalies that violate it, and the number of checked items."""
    about: dict[str, list[str]] = {}
    for name, (invariant, text) in MEANINGS.items():
        about.setdefault(invariant, []).append(f"{name} ({text})")
    return [(name, "; ".join(about.get(name, [])), count) for name, count in verdict.checked.items()]


def _render(template: str, **values: Any) -> str:
    return str(
        template_environment().get_template(template).render(light=LIGHT, dark=DARK, node_colours=NODES, **values)
    )


@cache
def template_environment() -> Any:
    """Return the environment that finds the templates, with their filters. Raises MissingExtra."""
    jinja2 = import_extra("jinja2")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.filters.update(
        ms=formats.format_ms,
        at=formats.format_at,
        rate=formats.format_rate,
        gap=formats.format_gap,
        clip=formats.clipped,
        sentence=formats.sentence,
        link=lambda path: quote(path, safe="/._-~#"),
    )
    environment.globals.update(
        signs=formats.SIGNS,
        headline=formats.headline,
        anomaly_sentence=formats.anomaly_sentence,
        fault_words=formats.fault_words,
        longest_gap=formats.longest_gap,
        count_of=formats.count_of,
    )
    return environment


def _safe(svg: str) -> Any:
    """Mark SVG that this package made as safe: its texts are escaped already."""
    return import_extra("markupsafe").Markup(svg)
