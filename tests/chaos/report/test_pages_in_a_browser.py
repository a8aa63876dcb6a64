"""Tests of the pages in headless Chromium: they cause no error and no request, can be used by keyboard and on a narrow
screen, and have a light and a dark theme.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kraft.sim.chaos.judge import Gap
from kraft.sim.chaos.report import render_run, render_summary
from tests.chaos.report.folders import (
    application_run,
    empty_run,
    hostile_run,
    invalid_run,
    unknown_run,
    valid_run,
)
from tests.stages.browser import Browser, chromium

pytestmark = pytest.mark.interop

MAKERS = (valid_run, invalid_run, unknown_run, empty_run, application_run, hostile_run)
PAGES = [make.__name__ for make in MAKERS] + ["summary"]
NARROW_PX = 360


class PageBrowser(Browser):
    """A browser that shows the pages of a folder."""

    @property
    def tip(self) -> str:
        """Return the tooltip of the item that the mouse points at or that has the focus."""
        return str(self.run("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageBrowser]:
    folder = tmp_path_factory.mktemp("pages")
    for make in MAKERS:
        (folder / f"{make.__name__}.html").write_text(render_run(*make().parts), encoding="utf-8")
    (folder / "summary.html").write_text(_summary(), encoding="utf-8")
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield PageBrowser(driver, f"{folder.as_uri()}/", ".html")


def _summary() -> str:
    runs = [
        (replace(made.info, cluster=cluster, seed=seed), _with_gap(made.verdict, 200.0 + 90 * seed), "valid_run.html")
        for cluster in ("pykraft", "kafka")
        for seed, made in enumerate((valid_run(), invalid_run(), unknown_run(), *[valid_run()] * 9))
    ]
    return render_summary(runs)


def _with_gap(verdict: Any, gap_ms: float) -> Any:
    return replace(verdict, gaps=(Gap(fault=0, f="send", gap_ms=gap_ms, first_success_ms=gap_ms),))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_logs_no_error_and_sends_no_request(browser: PageBrowser, page: str) -> None:
    browser.open(page)
    assert browser.driver.get_log("browser") == []
    assert {url for url in browser.requests() if not url.startswith("data:")} == {browser.address(page)}
    assert browser.run("window.hit") is None


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_sideways_scroll_on_a_narrow_screen(browser: PageBrowser, page: str) -> None:
    browser.open(page, width_px=NARROW_PX)
    browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert browser.run("document.documentElement.scrollWidth") <= NARROW_PX
    assert browser.run("document.body.scrollWidth") <= NARROW_PX


def test_a_timeline_scrolls_in_its_own_box_on_a_narrow_screen(browser: PageBrowser) -> None:
    browser.open("valid_run", width_px=NARROW_PX)
    assert browser.run("document.querySelector('#timeline .scroll').scrollWidth") >= 800
    assert browser.run("document.querySelector('#timeline .scroll').clientWidth") < NARROW_PX
    browser.open("valid_run")
    assert browser.run("((box) => box.scrollWidth <= box.clientWidth)(document.querySelector('#timeline .scroll'))")


def test_the_dark_theme_follows_the_system_until_the_button_is_pressed(browser: PageBrowser) -> None:
    browser.open("valid_run", scheme="dark")
    dark = browser.background
    assert browser.run("document.querySelector('#theme span').textContent") == "Light"
    browser.open("valid_run")
    light = browser.background
    assert light != dark
    for wanted in (dark, light):
        browser.run("document.getElementById('theme').click()")
        assert browser.background == wanted


def test_the_first_tab_stop_is_a_link_to_the_verdict(browser: PageBrowser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open("valid_run")
    browser.press(Keys.TAB)
    assert browser.run("document.activeElement.className") == "skip"
    assert browser.run("document.activeElement.getBoundingClientRect().left") >= 0
    browser.press(Keys.ENTER)
    assert browser.run("document.activeElement.id") == "main"


def test_tab_stops_are_the_menu_then_the_timeline_then_the_tables(browser: PageBrowser) -> None:
    browser.open("invalid_run")
    for expression in (
        "it.hash === '#timeline'",
        "it.id === 'theme'",
        "it.hash === '#anomaly-1'",
        "it.matches('.scroll')",
        "it.dataset.fault === '1'",
        "it.matches('.item.anomaly')",
        "it.id === 'points'",
        "it.matches('.item.node')",
        "it.matches('.item.isr')",
        "it.matches('#faults > summary')",
        "it.dataset.copy === 'command'",
    ):
        browser.tab_to(expression)
        outline = browser.run("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", f"the focus is not seen at {expression}"


def test_arrow_keys_move_between_faults_and_show_each(browser: PageBrowser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open("valid_run")
    browser.tab_to("it.dataset.fault === '1'")
    assert browser.tip.startswith("Fault 1, kill of the leader, node 2")
    browser.press(Keys.ARROW_RIGHT)
    assert browser.run("document.activeElement.dataset.fault") == "2"
    assert browser.tip.startswith("Fault 2, isolate, node 3")
    for identifier, is_on in (("band-1", False), ("band-2", True), ("fault-1", False), ("fault-2", True)):
        assert browser.run(f"document.getElementById('{identifier}').classList.contains('on')") is is_on
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert browser.run("document.activeElement.dataset.fault") == "1"
    browser.press(Keys.ENTER)
    assert browser.run("location.hash") == "#fault-1"


def test_arrow_keys_move_between_operations_and_to_failed_ones(browser: PageBrowser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open("valid_run")
    browser.tab_to("it.id === 'points'")
    first = browser.tip
    assert " ok after " in first
    browser.press(Keys.ARROW_RIGHT)
    assert browser.tip not in ("", first)
    browser.press(Keys.ARROW_DOWN)
    assert " fail after " in browser.tip
    assert "NOT_ENOUGH_REPLICAS" in browser.tip
    assert browser.run("document.activeElement.getAttribute('aria-label')") == browser.tip
    browser.press(Keys.HOME)
    assert browser.tip == first


@pytest.mark.parametrize(("selector", "words"), [
    (".item.clear", "ok/s"), (".item.node", "epoch 4"), (".item.isr.short", "(2 of 3)"), (".item.gap", "Gap of 640 ms"),
    ("#band-1 ~ g .item.fault", "kill of the leader"), (".item.output", "stdout: consumed 100 records"),
])  # fmt: skip
def test_pointing_at_a_timeline_item_shows_its_time_and_values(browser: PageBrowser, selector: str, words: str) -> None:
    browser.open("application_run")
    _point_at(browser, f"document.querySelector('{selector}').getBoundingClientRect()")
    assert words in browser.tip
    assert " s" in browser.tip


def test_pointing_at_an_operation_shows_its_time_and_values(browser: PageBrowser) -> None:
    browser.open("valid_run")
    browser.run("document.getElementById('points').focus()")
    shown = browser.tip
    box = "document.querySelector('#points .ring').getBoundingClientRect()"
    place = browser.run(f"(({{x, y, width, height}}) => ({{x, y, width, height}}))({box})")
    browser.run("document.getElementById('points').blur()")
    assert browser.tip == ""
    _point_at(browser, json.dumps({**place, "left": place["x"], "top": place["y"]}))
    assert browser.tip == shown


def _point_at(browser: PageBrowser, box: str) -> None:
    """Scroll to a box in the window, and move the mouse to its middle."""
    browser.run("window.scrollTo({top: 330, behavior: 'instant'})") if box.startswith("document") else None
    x, y = browser.run(f"((box) => [box.left + box.width / 2, box.top + box.height / 2])({box})")
    browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})


def test_a_link_to_a_proof_opens_the_history_at_its_event(browser: PageBrowser) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    browser.open("invalid_run")
    assert not browser.run("document.getElementById('history').open")
    link = "document.querySelector('.anomaly-card a[href^=\"#event-\"]')"
    event = browser.run(f"{link}.hash")
    browser.run(f"{link}.click()")
    WebDriverWait(browser.driver, 10).until(lambda _: browser.run("document.getElementById('history').open"))
    assert browser.run("location.hash") == event
    assert browser.run(f"document.querySelector('{event}').matches('b:target')")


def test_the_command_that_repeats_a_run_can_be_copied(browser: PageBrowser) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    browser.open("valid_run")
    browser.run("document.querySelector('button[data-copy]').click()")
    said = "document.querySelector('button[data-copy]').textContent"
    WebDriverWait(browser.driver, 10).until(lambda _: browser.run(said) != "Copy")
    assert browser.run(said) == "Copied" or "kraft chaos run" in browser.run("String(getSelection())")


def test_a_printed_page_shows_all_sections_on_white(browser: PageBrowser) -> None:
    browser.open("valid_run", scheme="dark")
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.querySelectorAll('details:not([open])').length") == 0
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert browser.background == "rgb(255, 255, 255)"
    assert browser.run("getComputedStyle(document.querySelector('.bar')).display") == "none"
    browser.run("window.dispatchEvent(new Event('afterprint'))")
    assert browser.run("document.querySelectorAll('details:not([open])').length") > 0


def test_dots_of_a_summary_link_to_their_runs(browser: PageBrowser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open("summary")
    browser.tab_to("it.matches('.item.median')")
    assert "Median of broker-crash on pykraft" in browser.tip
    browser.press(Keys.ARROW_RIGHT)
    assert "broker-crash on pykraft, seed 0: valid, gap 200 ms in send" in browser.tip
    browser.press(Keys.ENTER)
    assert browser.driver.current_url == browser.address("valid_run")
