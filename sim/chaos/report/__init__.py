"""Synchronous: reports: a run as a page, a picture and a text, and a campaign as a page and a table.

Each report is a function of the values in a run folder; only `write_report` touches files. A page is a single
self-contained HTML file that sends no requests. Needs jinja2 and matplotlib of the extra [chaos], imported when used.
May import kraft.sim.chaos's values, kraft.sim.check and kraft.sim.story.
"""

from kraft.sim.chaos.report.page import render_run, render_summary, write_report
from kraft.sim.chaos.report.picture import draw_run
from kraft.sim.chaos.report.summary import summary_table_markdown
from kraft.sim.chaos.report.text import text_summary

__all__ = ["draw_run", "render_run", "render_summary", "summary_table_markdown", "text_summary", "write_report"]
