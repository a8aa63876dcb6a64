"""Messages, History and Faults in headless Chromium, for a cluster with fault control."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraft.deploy.launch.control import LocalCluster
from tests.deploy.console.consoles import cluster_running, console_running
from tests.stages.browser import Browser, chromium
from tests.stages.kraft_command import Command

pytestmark = pytest.mark.interop

NARROW_PX = 360


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One controller and two brokers, with fault control."""
    with cluster_running(tmp_path_factory.mktemp("faults"), brokers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def browser(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    kraft = Command(tmp_path_factory.mktemp("home"))
    bootstrap = cluster.bootstrap_servers
    kraft.run("topics", "create", "orders", "--partitions", "2", "--replication-factor", "2", "-b", bootstrap)
    kraft.run("produce", "orders", "-b", bootstrap, text='{"order": 1}\n')
    arguments = ("--allow-changes", "--data", str(cluster.folder.path))
    with (
        console_running(kraft, bootstrap, *arguments) as console,
        chromium(tmp_path_factory.mktemp("chromium")) as driver,
    ):
        yield Browser(driver, console.url.rstrip("/"))


def test_console_pages_of_a_local_cluster_log_no_error_and_the_history_slider_moves_by_keyboard(
    browser: Browser,
) -> None:
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.wait import WebDriverWait

    for page in (
        "/messages",
        "/messages/orders",
        "/history",
        "/history?at=5&since=2",
        "/faults",
    ):
        for width_px, scheme in ((1_280, "light"), (NARROW_PX, "dark")):
            browser.open(page, width_px=width_px, scheme=scheme)
            assert browser.run("document.querySelector('.problem') === null"), page
            assert browser.run("document.documentElement.scrollWidth") <= width_px
            assert browser.driver.get_log("browser") == []
    browser.open("/history?at=5")
    browser.run("document.getElementById('slide').focus()")
    browser.press(Keys.ARROW_LEFT)
    WebDriverWait(browser.driver, 10).until(lambda _: "at=4" in browser.driver.current_url)


def test_the_strip_of_the_fault_board_shows_a_broker_that_forms_killed_and_started(browser: Browser) -> None:
    whole = "document.querySelectorAll('#strip .cell.whole').length"
    browser.open("/faults")
    browser.wait(f"{whole} >= 2")
    submit(browser, "kill", 2)
    browser.driver.switch_to.alert.accept()
    wait_notice(browser, "node 2 is killed")
    browser.run("window.mark = 1")
    browser.wait("document.querySelector('[data-node=\"2\"]').textContent === 'ended'")
    browser.wait("document.querySelectorAll('#strip .cell.short .gone').length >= 2", seconds_max=60)
    assert "2 short of replicas in sync" in browser.run("document.getElementById('summary').textContent")
    assert browser.run("window.mark") == 1
    browser.open("/faults")
    submit(browser, "start", 2)
    wait_notice(browser, "node 2 is started")
    browser.wait(f"{whole} >= 2", seconds_max=60)
    browser.wait("document.querySelector('[data-node=\"2\"]').textContent === 'ready'")
    assert browser.driver.get_log("browser") == []


def test_console_forms_cut_and_heal_links_and_pause_a_node(browser: Browser, cluster: LocalCluster) -> None:
    browser.open("/faults")
    submit(browser, "cut", 2)
    browser.wait("[...document.querySelectorAll('.tag.warning')].some((it) => it.textContent.includes(': hang'))")
    submit(browser, "heal")
    wait_notice(browser, "faults cleared")
    assert browser.run("document.querySelectorAll('.tag.warning').length") == 0
    cluster.pause(2)  # not started by this page, which updates itself
    browser.wait("document.querySelector('[data-node=\"2\"]').textContent === 'paused'")
    browser.open("/faults")
    submit(browser, "resume", 2)
    wait_notice(browser, "node 2 is resumed")


def test_a_fault_that_is_not_possible_is_explained_in_its_form(browser: Browser) -> None:
    browser.open("/faults")
    browser.run("document.querySelector('input[name=delay_ms]').value = '0'")
    browser.run("document.querySelector('input[name=delay_ms]').form.requestSubmit()")
    browser.wait("document.querySelector('form.inline .problem') !== null")
    assert "expected 1 to 60000 ms" in browser.run("document.querySelector('form.inline .problem').textContent")


def submit(browser: Browser, action: str, node: int | None = None) -> None:
    """Press the button of the form that has this action, in the row of this node."""
    at = "" if node is None else f" && it.querySelector('[name=node]').value === '{node}'"
    chosen = f"it.querySelector('[name=action]')?.value === '{action}'{at}"
    browser.run(f"setTimeout(() => [...document.forms].find((it) => {chosen}).querySelector('button').click())")


def wait_notice(browser: Browser, words: str) -> None:
    """Wait until the page shows the notice of the last change."""
    browser.wait(f"(document.querySelector('.notice')?.textContent ?? '').includes('{words}')")
