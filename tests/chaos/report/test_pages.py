"""Tests of the page of a run: its contents and its size, and that texts of the run never become markup."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kraft.sim.chaos.history import Function, HistoryEvent, HistoryEventType, HistoryRecorder
from kraft.sim.chaos.judge import FoundAnomaly, RunVerdict
from kraft.sim.chaos.report import draw_run, page, render_run, render_summary, write_report
from kraft.sim.chaos.report.excerpt import NEIGHBOURS
from kraft.sim.chaos.report.extra import MissingExtra
from kraft.sim.chaos.run.run_folder import FaultRecord
from tests.chaos.report.folders import (
    SCRIPT,
    MadeRun,
    application_run,
    empty_run,
    hostile_run,
    invalid_run,
    unknown_run,
    valid_run,
)

BYTES_MAX = 2_000_000
MAKERS = [valid_run, invalid_run, unknown_run, empty_run, application_run, hostile_run]
PNG = b"\x89PNG\r\n\x1a\n"
VOID = frozenset({"meta", "link", "br"})


class Elements(HTMLParser):
    """The elements that a browser would find in a page, with their attributes, and the text in each kind of element."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.mismatched: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.mismatched.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def values(self, attribute: str) -> list[str]:
        return [values[attribute] or "" for _, values in self.found if attribute in values]

    @property
    def text(self) -> str:
        return " ".join(" ".join(text for tag, text in self.texts if tag not in ("script", "style")).split())


def elements_of(made: MadeRun) -> Elements:
    return Elements(render_run(*made.parts))


@pytest.mark.parametrize("make", MAKERS)
def test_a_page_is_well_formed_and_each_of_its_links_has_a_target(make: Callable[[], MadeRun]) -> None:
    elements = elements_of(make())
    assert (elements.open, elements.mismatched) == ([], [])
    identifiers = elements.values("id")
    assert len(identifiers) == len(set(identifiers))
    inner = {link[1:] for link in elements.values("href") if link.startswith("#")}
    assert inner
    assert inner <= set(identifiers)


@pytest.mark.parametrize("make", MAKERS)
def test_a_page_refers_to_nothing_outside_the_run_folder(make: Callable[[], MadeRun]) -> None:
    elements = elements_of(make())
    assert elements.values("src") == []
    outer = {link for link in elements.values("href") if not link.startswith("#")}
    files = {"run.json", "verdict.json", "history.jsonl", "faults.jsonl", "samples.jsonl", "output.jsonl"}
    assert outer <= files | {"data:,", "report.png", "nodes/"}
    styles = "".join(text for tag, text in elements.texts if tag == "style")
    assert "url(" not in styles
    assert "@import" not in styles


def test_markup_in_texts_of_a_run_does_not_become_page_elements() -> None:
    plain, hostile = elements_of(invalid_run()), elements_of(hostile_run())
    assert sum(tag == "script" for tag, _ in hostile.found) == sum(tag == "script" for tag, _ in plain.found) == 2
    assert not any(tag == "img" or "onerror" in values for tag, values in hostile.found)
    assert hostile.text.count("window.hit = 1") > 30
    hostile_page = render_run(*hostile_run().parts)
    assert SCRIPT not in hostile_page
    assert "</script><img" not in hostile_page


def test_markup_in_texts_of_runs_does_not_become_summary_elements() -> None:
    made = hostile_run()
    html = render_summary([(made.info, made.verdict, f"javascript:{SCRIPT}")])
    elements = Elements(html)
    assert SCRIPT not in html
    assert not any(tag == "img" for tag, _ in elements.found)
    assert not any(link.startswith("javascript:") for link in elements.values("href"))


def test_the_page_of_a_valid_run_shows_the_verdict_first_and_all_parts() -> None:
    text = elements_of(valid_run()).text
    assert text.index("No anomaly was found in 3,091 operations") < text.index("Throughput")
    for part in ("Throughput", "Latency", "Leader, epoch", "ISR size", "Controller, epoch"):
        assert part in text
    assert "ISR of chaos-0 went from 1,2,3 to 1,3 after 0.31 s." in text
    assert "send 640 ms chaos-0" in text
    assert "kraft chaos run broker-crash --seed 7" in text
    assert "an acknowledged record was not read" in text, "the table of what was looked at names what would break it"


def test_a_fault_has_a_band_a_name_and_a_row_on_the_page() -> None:
    elements = elements_of(valid_run())
    assert {"band-1", "band-2", "fault-1", "fault-2"} <= set(elements.values("id"))
    assert elements.values("data-fault") == ["1", "2"]
    titles = [text for tag, text in elements.texts if tag == "title"]
    [title] = [text for text in titles if text.startswith("Fault 1")]
    for words in ("kill of the leader, node 2", "4.00 s to 9.00 s", "ISR of chaos-0", "gap 640 ms"):
        assert words in title


def test_a_fault_that_did_not_happen_has_no_band_and_shows_its_reason() -> None:
    elements = elements_of(unknown_run())
    assert "band-2" not in elements.values("id")
    assert "did not happen: No broker led a partition." in elements.text
    assert "The run cannot be judged: 2 reasons" in elements.text
    assert "One producer was not started." in elements.text


def test_an_anomaly_on_the_page_links_to_the_events_that_prove_it() -> None:
    made = invalid_run()
    elements = elements_of(made)
    links = set(elements.values("href"))
    for number, anomaly in enumerate(made.verdict.anomalies, start=1):
        assert f"#anomaly-{number}" in links
        assert {f"#event-{index}" for index in anomaly.operations} <= links
    assert "42 anomalies in 3,091 operations: lost write (41), duplicate (1)." in elements.text
    assert "permitted by the scenario" in elements.text


def test_the_page_shows_a_short_history_completely() -> None:
    made = valid_run()
    assert f"{len(made.history):,} of {len(made.history):,} events" in elements_of(made).text


def test_the_page_of_a_long_history_shows_only_proving_events_and_their_neighbours() -> None:
    made = valid_run(rate=200)
    assert len(made.history) > 10_000
    send = next(
        event for event in made.history[5_000:] if event.type is HistoryEventType.OK and event.f is Function.SEND
    )
    anomaly = FoundAnomaly(name="lost write", text="gone", place="chaos-0", evidence={}, operations=(send.index,))
    verdict = replace(made.verdict, verdict="invalid", anomalies=(anomaly,), anomaly_counts={"lost write": 1})
    elements = elements_of(replace(made, verdict=verdict))
    lines = [text for tag, text in elements.texts if tag in ("pre", "b", "span")]
    shown = {int(number) for number in re.findall(r"^ *(\d+) +[\d.]+ s  ", "".join(lines), re.MULTILINE)}
    near = set(range(send.index - NEIGHBOURS, send.index + NEIGHBOURS + 1))
    invocation = max(event.index for event in made.history[: send.index] if event.process == send.process)
    assert near | {invocation} <= shown
    assert len(shown) <= 2 * len(near)
    assert f"event-{send.index}" in elements.values("id")
    assert "history.jsonl" in elements.values("href")


def test_a_page_of_twenty_thousand_operations_is_below_two_megabytes() -> None:
    made = valid_run(rate=345)
    assert len(made.history) > 40_000
    assert len(render_run(*made.parts).encode()) < BYTES_MAX


def test_a_page_of_twenty_thousand_failures_draws_each_and_is_below_two_megabytes() -> None:
    made = valid_run(rate=345)
    failed = [
        replace(event, type=HistoryEventType.INFO, error="REQUEST_TIMED_OUT")
        if event.type is HistoryEventType.OK
        else event
        for event in made.history
    ]
    html = render_run(*replace(made, history=failed).parts)
    assert len(html.encode()) < BYTES_MAX
    [data] = [text for tag, text in Elements(html).texts if tag == "script" and text.startswith('{"')]
    assert data.count("],[") + 1 == sum(event.type is not HistoryEventType.INVOKE for event in failed) > 20_000


def test_output_lines_of_an_application_are_in_the_timeline_and_in_a_section() -> None:
    made = application_run()
    elements = elements_of(made)
    ticks = [values for _, values in elements.found if (values.get("class") or "").startswith("item output")]
    assert len(ticks) == len(made.output)
    assert "python app.py --topic orders" in elements.text
    assert "ended with exit code 0." in elements.text
    assert "consumed 100 records" in elements.text


def test_a_very_long_application_output_is_shortened_in_the_middle() -> None:
    made = application_run()
    long = replace(made, output=[replace(made.output[0], text=f"line {number}") for number in range(5_000)])
    text = elements_of(long).text
    assert "line 0 " in text
    assert "line 4999" in text
    assert "line 2501" not in text, "nor is it among the ticks of the timeline: each fifth is one"
    assert "4,400 lines are in output.jsonl" in text


def test_the_page_of_an_empty_run_says_that_there_is_no_data() -> None:
    text = elements_of(empty_run()).text
    assert "Broker 2 did not start." in text
    assert "The history is empty." in text
    assert "The run has no operation, fault or sample to show." in text


def test_a_fault_without_end_and_an_open_operation_are_drawn_to_the_end_of_the_run() -> None:
    history = HistoryRecorder(lambda: 1_000_000_000)
    history.invoke("producer-0", Function.SEND, place=["chaos", 0], value="producer-0/0")
    fault = FaultRecord(kind="pause", text="node 1 is frozen", begin_ms=500, end_ms=None, nodes=(1,))
    made = MadeRun(valid_run().info, RunVerdict(verdict="unknown", reasons=("cut short",)), history.events, [fault])
    html = render_run(*made.parts)
    assert "until the end" in html
    assert "never completed" in html


def test_write_report_creates_the_report_from_the_files_of_a_run_folder(tmp_path: Path) -> None:
    made = invalid_run()
    folder = made.written_to(tmp_path)
    write_report(folder, made.verdict)
    assert folder.report.read_text(encoding="utf-8") == render_run(*made.parts)
    assert folder.picture.read_bytes().startswith(PNG)


@pytest.mark.parametrize("make", MAKERS)
def test_a_picture_is_drawn_for_each_kind_of_run(make: Callable[[], MadeRun], tmp_path: Path) -> None:
    path = tmp_path / "report.png"
    draw_run(*make().parts, path)
    assert path.read_bytes().startswith(PNG)
    assert path.stat().st_size > 5_000


@pytest.mark.parametrize("library", ["jinja2", "matplotlib.figure"])
def test_a_missing_report_library_is_named_with_its_install_command(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = empty_run()
    monkeypatch.setitem(sys.modules, library, None)
    page.template_environment.cache_clear()
    with pytest.raises(MissingExtra, match=rf"{library.partition('.')[0]}.*pip install 'pykraft\[chaos\]'"):
        write_report(made.written_to(tmp_path), made.verdict)


def test_rendering_the_same_run_twice_gives_the_same_page() -> None:
    made = valid_run(rate=200)
    assert render_run(*made.parts) == render_run(*made.parts)


def test_history_events_with_arbitrary_values_are_shown() -> None:
    odd = [
        HistoryEvent(0, 0, "x", HistoryEventType.INVOKE, Function.POLL, "", {"place": "no place", "records": None}),
        HistoryEvent(1, 5, "x", HistoryEventType.OK, Function.POLL, "", {"records": [1, {"a": "\n"}]}),
        HistoryEvent(2, 6, "y", HistoryEventType.OK, Function.COMMIT, "", {"group": "g", "offsets": [["t", 0, 3]]}),
    ]
    text = elements_of(replace(empty_run(), history=odd)).text
    assert 'offsets=[["t",0,3]]' in text
