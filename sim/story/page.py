"""Renders the report of a run as one self-contained HTML page: the finding, pictures, the logs, and every event as
text.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from kraft.sim.run.shrink import describe
from kraft.sim.story.chart import COLOURS, MARKS, Chart
from kraft.sim.story.lanes import lanes_of
from kraft.sim.story.story import HeldBatch, Story
from kraft.sim.story.text import batch_text, event_lines

WIDTH_PX = 1_050
WIDEST_PX = 6_000
PX_PER_SECOND = 60
CLOSE_UP_MS = 1_000
"""Time in ms before the finding that the second, enlarged picture shows."""

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1240px; padding: 0 1em; color: #222; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; }
.finding { border-left: 4px solid #c9302c; background: #fbeceb; padding: .6em 1em; }
.passed { border-left: 4px solid #3c9d6b; background: #eaf6ef; padding: .6em 1em; }
.scroll { overflow-x: auto; border: 1px solid #ddd; }
svg { display: block; font: 11px system-ui, sans-serif; }
svg .axis { text-anchor: middle; fill: #666; } svg .tick { stroke: #eee; }
svg .name { text-anchor: end; } svg .name.evidence { fill: #c9302c; font-weight: bold; }
svg .lane { fill: none; stroke: #eee; } svg .lane.evidence { stroke: #c9302c; }
svg .label { fill: #222; pointer-events: none; } svg .label.dark { fill: #fff; pointer-events: none; }
svg .mark { text-anchor: middle; fill: #c9302c; font-size: 13px; }
svg .found { stroke: #c9302c; stroke-width: 1.5; stroke-dasharray: 4 2; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15em .8em; border-bottom: 1px solid #eee; }
td.differs { background: #fbeceb; color: #c9302c; font-weight: bold; }
pre, code, td { font-family: ui-monospace, monospace; font-size: 12px; }
.key span { display: inline-block; padding: 0 .5em; margin: 0 .3em .3em 0; border-radius: 2px; }
"""


def render_page(story: Story) -> str:
    """Return the whole page as HTML."""
    title = f"{story.source}: " + (f"{story.finding.check} fails" if story.finding else "nothing was found")
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
            f"<style>{STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            f"<p>Seed {story.plan.seed}: {escape(describe(story.plan))}. Trace {story.trace_hash}.</p>",
            *_found(story),
            *_invariant(story),
            *_pictures(story),
            *_logs(story),
            *_settings(story),
            "<h2>Everything, in order</h2>",
            f"<pre>{escape(chr(10).join(event_lines(story.chronicle, story.end_ms)))}</pre>",
            f"<p>Again: <code>kraft sim replay {escape(story.source)}</code></p>",
            "</body></html>",
            "",
        ]
    )


def _found(story: Story) -> Iterator[str]:
    finding = story.finding
    if finding is None:
        yield '<p class="passed">Every check held.</p>'
        return
    named = f'<a href="#invariant">{finding.check}</a>' if story.statement else finding.check
    yield f'<div class="finding"><b>{named}</b> at {finding.at_ms} ms: {escape(finding.text)}.'
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(str(fact))}</td></tr>" for name, fact in finding.evidence.items())
    yield f"<table>{''.join(rows)}</table></div>"


def _pictures(story: Story) -> Iterator[str]:
    lanes = lanes_of(story)
    found_ms = None if story.finding is None else story.finding.at_ms
    span_ms = story.end_ms
    width_px = max(WIDTH_PX, min(WIDEST_PX, span_ms * PX_PER_SECOND // 1_000))
    if found_ms is not None and span_ms > 2 * CLOSE_UP_MS:
        yield "<h2>The last moments before</h2>"
        chart = Chart(lanes, found_ms - CLOSE_UP_MS, found_ms + CLOSE_UP_MS // 20, WIDTH_PX, found_ms)
        yield f'<div class="scroll">{chart.svg()}</div>'
    yield "<h2>The whole run</h2>"
    yield f'<div class="scroll">{Chart(lanes, 0, span_ms + span_ms // 50, width_px, found_ms).svg()}</div>'
    yield '<p class="key">'
    for look, colour in COLOURS.items():
        white = ";color:#fff" if look in ("leader", "down") else ""
        yield f'<span style="background:{colour}{white}">{look}</span>'
    yield "".join(f"<span>{sign} {escape(look)}</span>" for look, sign in MARKS.items())
    yield "</p>"
    yield (
        "<p>A partition has a colour for each leader. Its label is the leader, the ISR and the leader epoch. A red "
        "name or frame: the finding names it.</p>"
    )


def _logs(story: Story) -> Iterator[str]:
    if not story.logs:
        return
    name = "The metadata log" if story.partition is None else f"{story.partition[0]}-{story.partition[1]}"
    yield f"<h2>{escape(name)} at that moment</h2>"
    yield "<p>The last batches of each copy, as base offset-end:epoch; red where copies differ.</p><table>"
    for log in story.logs:
        cells = "".join(f"<td{_css(batch)}>{batch_text(batch).rstrip('*')}</td>" for batch in log.batches)
        yield f"<tr><th>node {log.node}</th><td>[{log.start_offset}, {log.end_offset})</td>{cells}</tr>"
    yield "</table>"


def _css(batch: HeldBatch) -> str:
    return ' class="differs"' if batch.differs else ""


def _invariant(story: Story) -> Iterator[str]:
    """Return the invariant with the finding's code."""
    if story.finding is None or not story.statement:
        return
    yield f'<h2 id="invariant">What {story.finding.check} means</h2>'
    yield f"<p>{escape(story.statement)}</p>"


def _settings(story: Story) -> Iterator[str]:
    plan = story.plan
    yield "<h2>The cluster</h2><table>"
    given = {**plan.shape.overrides, **{f"topic: {name}": value for name, value in plan.topic_configs.items()}}
    for name, value in given.items():
        yield f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
    yield "</table>"
