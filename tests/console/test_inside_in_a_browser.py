"""Messages, History and Faults in headless Chromium, over a cluster with fault control."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraft.deploy.launch.control import LocalCluster
from tests.browser import Browser, chromium
from tests.console.consoles import console_running
from tests.deploy.clusters import Command

pytestmark = pytest.mark.interop

NARROW_PX = 360


@pytest.fixture
def browser(small_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    kraft = Command(tmp_path_factory.mktemp("home"))
    bootstrap = small_cluster.bootstrap_servers
    kraft.run("topics", "create", "orders", "--partitions", "1", "--if-not-exists", "-b", bootstrap)
    kraft.run("produce", "orders", "-b", bootstrap, text='{"order": 1}\n')
    arguments = ("--allow-changes", "--data", str(small_cluster.folder.path))
    with (
        console_running(kraft, bootstrap, *arguments) as console,
        chromium(tmp_path_factory.mktemp("chromium")) as driver,
    ):
        yield Browser(driver, console.url.rstrip("/"))


def test_pages_log_no_error_and_the_slider_moves_by_keyboard(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.wait import WebDriverWait

    for page in (
        "/messages",
        "/messages/orders",
        "/messages/orders/0/0",
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
