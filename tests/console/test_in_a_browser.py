"""The console in headless Chromium, over our cluster and over Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraft.sim.chaos.apache.kafka_files import QUICK_NODE_JVM
from kraft.sim.chaos.apache.kafka_layout import KafkaLayout
from tests.bench.kafka import free_port, layout_running
from tests.browser import Browser, chromium
from tests.clusters import LocalCluster, running
from tests.console.consoles import console_running
from tests.deploy.clusters import Command

pytestmark = pytest.mark.interop

NARROW_PX = 360
PAGES = (
    *("/", "/topics", "/partitions", "/topics/orders", "/topics/orders/0", "/topics/orders/configs?show=all"),
    *("/groups", "/group?id=billing", "/group/reset?id=billing&to=earliest", "/nodes", "/nodes/1", "/reassignments"),
)
PARTITIONS = 10_000
FIRST_PAINT_MS_MAX = 1_000


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
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with cluster_of(request.param) as found:
        yield found


@pytest.fixture(scope="module")
def browser(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser over the console of a cluster with a topic and a group."""
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
def test_a_page_logs_no_error_asks_no_other_host_and_is_not_wider_than_the_screen(browser: Browser, page: str) -> None:
    for width_px, scheme in ((1_280, "light"), (NARROW_PX, "dark")):
        browser.open(page, width_px=width_px, scheme=scheme)
        assert browser.run("document.querySelector('main h1') !== null")
        assert browser.run("document.querySelector('.problem') === null")
        assert browser.driver.get_log("browser") == []
        base = browser.address("/")
        assert {url for url in browser.requests() if not url.startswith((base, "data:", "about:"))} == set()
        assert browser.run("document.documentElement.scrollWidth") <= width_px


def test_dark_follows_the_system_until_the_button_is_pressed(browser: Browser) -> None:
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


def test_keys_find_a_topic_and_skip_to_the_content(browser: Browser) -> None:
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


def test_a_setting_is_changed_by_a_form(browser: Browser) -> None:
    browser.open("/topics/orders/configs?edit=retention.ms&show=all")
    browser.run("document.querySelector('input[name=value]').value = '777000'")
    browser.run("document.querySelector('button[value=set]').click()")
    browser.wait("document.querySelector('.notice') && document.body.textContent.includes('777000')")


def test_a_broker_that_dies_is_seen_without_loading_the_page_again(browser: Browser, cluster: LocalCluster) -> None:
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


def test_ten_thousand_partitions_are_painted_within_a_second(browser: Browser, cluster: LocalCluster) -> None:
    for number in range(10):
        cluster.create_topic(f"wide-{number}", partitions=PARTITIONS // 10, replication_factor=1)
    browser.open("/")
    browser.wait(
        "Number(document.querySelector('.figure[href=\"/partitions\"] b').textContent.replace(',', ''))"
        f" >= {PARTITIONS}"
    )
    for page in ("/", "/topics", "/partitions", "/partitions?page=90", "/topics/wide-0"):
        browser.open(page)
        browser.wait("performance.getEntriesByName('first-contentful-paint').length === 1")
        paint_ms = browser.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        print(page, round(paint_ms))
        assert paint_ms <= FIRST_PAINT_MS_MAX, page
        assert browser.run("document.querySelectorAll('tbody tr').length") <= 110
