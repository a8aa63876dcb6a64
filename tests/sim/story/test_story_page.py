"""Tests of the HTML page of a run: states are distinguishable, labels are complete, codes are explained."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from kraft.sim.check.base import Finding
from kraft.sim.cluster import chronicle as kinds
from kraft.sim.cluster.chronicle import ChronicleEvent
from kraft.sim.nemesis.plan import Plan
from kraft.sim.run.plan_file import RecordedPlan
from kraft.sim.story.chart import CHARACTER_PX, COLOURS, LEADER_COLOURS, Chart
from kraft.sim.story.lanes import lanes_of
from kraft.sim.story.page import render_page
from kraft.sim.story.story import Story, make_story

STATEMENT = "No running replica removes a committed record, but from the front."


@pytest.fixture(scope="module")
def story() -> Story:
    return make_story(
        RecordedPlan(Plan(duration_ms=100, ends_early=True), "hash-of-the-file", None, "", "0"), "plan.json"
    )


@pytest.fixture
def found(story: Story) -> Story:
    return replace(story, finding=Finding("D9", 1, story.end_ms, "a record is gone", {"node": 1}), statement=STATEMENT)


def test_a_killed_broker_that_is_fenced_afterwards_is_drawn_as_down(story: Story) -> None:
    told = [
        ChronicleEvent(0, kinds.UP, "up", 1),
        ChronicleEvent(10, kinds.REGISTRATION, "fenced", 1, value=(False,)),
        ChronicleEvent(20, kinds.REGISTRATION, "unfenced", 1, value=(True,)),
        ChronicleEvent(30, kinds.DOWN, "killed", 1),
        ChronicleEvent(40, kinds.REGISTRATION, "fenced", 1, value=(False,)),
        ChronicleEvent(60, kinds.UP, "up", 1),
    ]
    kept = story.chronicle.events
    story.chronicle.events = told
    try:
        lane = next(lane for lane in lanes_of(replace(story, end_ms=70)) if lane.name == "broker 1")
    finally:
        story.chronicle.events = kept
    assert [(segment.from_ms, segment.look) for segment in lane.segments] == [
        (0, "starting"),
        (10, "fenced"),
        (20, "serving"),
        (30, "down"),
        (40, "down"),
        (60, "starting"),
    ]


def test_states_on_the_page_of_a_run_have_different_colours() -> None:
    colours = [*COLOURS.values(), *LEADER_COLOURS]
    assert len(set(colours)) == len(colours)


@pytest.mark.parametrize("end_ms", [1_000, 16_000, 60_000, 3_600_000])
def test_axis_labels_on_the_page_of_a_run_are_within_the_picture(end_ms: int) -> None:
    picture = ElementTree.fromstring(Chart([], 0, end_ms, 1_000, None).svg())
    labels = [element for element in picture.iter() if element.get("class") == "axis"]
    assert len(labels) > 5
    for label in labels:
        half = len(label.text or "") * CHARACTER_PX / 2
        assert half <= float(label.get("x", "")) <= float(picture.get("width", "")) - half


def test_the_page_of_a_run_shows_the_trace_hash_of_the_plan_file(found: Story) -> None:
    assert "hash-of-the-file" in render_page(found)


def test_the_code_of_a_finding_on_the_page_of_a_run_links_to_its_invariant(found: Story) -> None:
    page = render_page(found)
    assert '<a href="#invariant">D9</a>' in page
    after = page.partition('id="invariant"')[2]
    assert after.index(STATEMENT) < after.index("<svg")


def test_the_legend_on_the_page_of_a_run_does_not_overlap_the_next_sentence(story: Story) -> None:
    (legend,) = re.findall(r'<p class="key">(.*?)</p>', render_page(story), flags=re.DOTALL)
    assert re.sub(r"<span[^>]*>[^<]*</span>", "", legend).strip() == ""
