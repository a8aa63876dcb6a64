"""The console in headless Chromium, for our cluster and for Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraft.sim.chaos.apache.kafka_files import QUICK_NODE_JVM
from kraft.sim.chaos.apache.kafka_layout import KafkaLayout
from tests.bench.kafka import free_port, layout_running
from tests.deploy.console.consoles import console_running
from tests.stages.browser import Browser, chromium
from tests.stages.kraft_command import Command
from tests.stages.started_clusters import LocalCluster, running

pytestmark = pytest.mark.interop

NARROW_PX = 360
PAGES = (
    *("/", "/topics", "/partitions", "/topics/orders", "/topics/orders/0", "/topics/orders/configs?show=all"),
    *("/groups", "/group?id=billing", "/group/reset?id=billing&to=earliest"),
    *("/group/reset?id=billing&to=time&value=-1h", "/nodes", "/nodes/1", "/reassignments", "/messages"),
    *("/messages/orders", "/messages/orders?where=begin&filter=two", "/history", "/faults"),
)


@contextmanager
def cluster_of(kind: str) -> Iterator[LocalCluster]:
    if kind == "kafka":
        layout = KafkaLayout.plain(free_port(), is_single=False)
        with layout_running(layout, ("group.initial.rebalance.delay.ms=0",), QUICK_NODE_JVM) as cluster:
            yield cluster
    else:
        with running() as cluster:
            yield cluster


@pytest.fixture(scope="module", params=["kraft", "kafka"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(kind: str) -> Iterator[LocalCluster]:
    with cluster_of(kind) as found:
        yield found


@pytest.fixture(scope="module")
def browser(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that shows the console of a cluster with a topic and a group."""
    home: Path = tmp_path_factory.mktemp("home")
    kraft = Command(home)
    where = ("-b", cluster.bootstrap)
    kraft.run("topics", "create", "orders", "--partitions", "3", "--replication-factor", "3", *where)
    kraft.run("produce", "orders", *where, text="one\ntwo\nthree\n")
    kraft.run("consume", "orders", "--group", "billing", "-n", "2", *where)
    with (
        console_running(kraft, cluster.bootstrap, "--allow-changes") as console,
        chromium(tmp_path_factory.mktemp("chromium")) as driver,
    ):
        yield Browser(driver, console.url.rstrip("/"))


@pytest.mark.parametrize("page", PAGES)
def test_a_console_page_logs_no_error_requests_no_other_host_and_is_not_wider_than_the_screen(
    browser: Browser, page: str
) -> None:
    for width_px, scheme in ((1_280, "light"), (NARROW_PX, "dark")):
        browser.open(page, width_px=width_px, scheme=scheme)
        assert browser.run("document.querySelector('main h1') !== null")
        assert browser.run("document.querySelector('.problem') === null")
        assert browser.driver.get_log("browser") == []
        base = browser.address("/")
        assert {url for url in browser.requests() if not url.startswith((base, "data:", "about:"))} == set()
        assert browser.run("document.documentElement.scrollWidth") <= width_px


@pytest.mark.parametrize("page", ["/messages/orders", "/groups", "/topics"])
def test_the_controls_of_a_form_have_one_height_and_are_on_one_line(browser: Browser, page: str) -> None:
    browser.open(page)
    boxes = browser.run(
        "[...document.querySelectorAll('main .filter :is(input:not([type=checkbox]), select)')]"
        ".map((it) => it.getBoundingClientRect()).map((it) => [it.top, it.height])"
    )
    assert len({tuple(box) for box in boxes}) == 1, boxes


def test_record_values_fit_on_a_narrow_screen(browser: Browser) -> None:
    browser.open("/messages/orders", width_px=NARROW_PX)
    edges = browser.run("[...document.querySelectorAll('.records td')].map((it) => it.getBoundingClientRect().right)")
    assert edges
    assert max(edges) <= NARROW_PX


def test_dark_mode_follows_the_system_until_the_button_is_pressed(browser: Browser) -> None:
    browser.open("/", scheme="dark")
    dark = browser.background
    browser.open("/")
    light = browser.background
    assert light != dark
    browser.run("document.getElementById('theme').click()")
    assert browser.background == dark
    browser.open("/topics")
    assert browser.background == dark
    browser.run("localStorage.clear()")


def test_keyboard_shortcuts_find_a_topic_and_skip_to_the_content(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open("/")
    browser.press(Keys.TAB)
    assert browser.run("document.activeElement.className") == "skip"
    assert browser.run("document.activeElement.getBoundingClientRect().left") >= 0
    browser.press(Keys.ENTER)
    assert browser.run("document.activeElement.id") == "main"
    browser.press("/")
    assert browser.run("document.activeElement.id") == "find"
    browser.press("order", Keys.ENTER)
    browser.wait("location.pathname === '/topics' && location.search === '?q=order'")
    browser.tab_to("it.getAttribute('href') === '/topics/orders'")
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    browser.press(Keys.ENTER)
    browser.wait("location.pathname === '/topics/orders'")


def test_submitting_the_settings_form_in_a_browser_changes_the_setting(browser: Browser) -> None:
    browser.open("/topics/orders/configs?edit=retention.ms&show=all")
    browser.run("document.querySelector('input[name=value]').value = '777000'")
    browser.run("document.querySelector('button[value=set]').click()")
    browser.wait("document.querySelector('.notice') && document.body.textContent.includes('777000')")


def test_a_dead_broker_appears_without_reloading_the_page(browser: Browser, cluster: LocalCluster) -> None:
    browser.open("/")
    browser.wait("document.querySelector('.alarm.fine') !== null")
    browser.run("window.mark = 1")
    with cluster.killed(2):
        browser.wait("document.getElementById('alarms').textContent.includes('Under-replicated')", seconds_max=60)
        browser.open("/topics/orders")
        assert browser.run("document.querySelector('.tag.under-replicated') !== null")
        browser.open("/")
    browser.wait("document.querySelector('.alarm.fine') !== null", seconds_max=90)
    assert browser.driver.get_log("browser") == []


def test_new_records_appear_live_in_a_browser(browser: Browser, cluster: LocalCluster, tmp_path: Path) -> None:
    browser.open("/messages/orders?filter=fresh")
    browser.wait("performance.getEntriesByType('resource').some((it) => it.initiatorType === 'fetch')")  # live updates
    browser.run("document.getElementById('follow').click()")
    browser.wait("document.getElementById('live-state').textContent === 'Following: 0 records.'")
    Command(tmp_path).run("produce", "orders", "-b", cluster.bootstrap, text="stale\n<b>fresh</b>\n")
    browser.wait("document.getElementById('live-state').textContent === 'Following: 1 record.'")
    assert browser.run("document.querySelectorAll('#records tr').length") == 1
    assert browser.run("document.querySelector('#records pre').textContent") == "<b>fresh</b>"
    browser.run("document.getElementById('follow').click()")
    assert browser.run("document.getElementById('live-state').textContent") == "Stopped."
    assert browser.driver.get_log("browser") == []


def test_a_change_that_fails_is_explained_in_its_form(browser: Browser) -> None:
    browser.open("/topics")
    browser.run("document.querySelector('main form.change input[name=name]').value = 'orders'")
    browser.run("document.querySelector('main form.change button').click()")
    browser.wait("document.querySelector('form.change .problem') !== null")
    assert "TOPIC_ALREADY_EXISTS" in browser.run("document.querySelector('form.change .problem').textContent")
    assert browser.run("location.pathname") == "/topics"
    assert browser.run("document.querySelector('main form.change input[name=name]').value") == "orders"


def test_the_history_page_shows_the_log_or_why_it_is_not_readable(browser: Browser, kind: str) -> None:
    browser.open("/history")
    if kind == "kafka":
        told = browser.run("document.getElementById('not-given').textContent")
        assert "There is no history of this cluster here." in told
        assert "Apache Kafka keeps it between its own nodes" in told
    else:
        assert browser.run("Number(document.getElementById('slide').max)") > 0
