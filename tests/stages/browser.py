"""A headless Chromium for tests of web pages, started by the test."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.programs import install_tools

TABS_MAX = 60
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """A Chromium, and the server whose pages it shows. `driver` is Selenium's. A page's address is its name between
    `base` and `suffix`."""

    def __init__(self, driver: Any, base: str, suffix: str = "") -> None:
        self.driver = driver
        self._base = base
        self._suffix = suffix

    def open(self, page: str, *, width_px: int = 1_280, scheme: str = "light") -> None:
        """Show a page in a window of this width. Clear the log and the requests of earlier pages."""
        metrics = {"width": width_px, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        media = {"media": "", "features": [{"name": name, "value": value} for name, value in features.items()]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.driver.get("about:blank")
        self.driver.get_log("performance")
        self.driver.get_log("browser")
        self.driver.get(self.address(page))

    def address(self, page: str) -> str:
        return f"{self._base}{page}{self._suffix}"

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression."""
        return self.driver.execute_script(f"return {script}")

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def tab_to(self, expression: str) -> None:
        """Press Tab until the JavaScript expression is true for `document.activeElement`, which the expression calls
        `it`."""
        from selenium.webdriver.common.keys import Keys

        for _ in range(TABS_MAX):
            self.press(Keys.TAB)
            if self.run(f"((it) => {expression})(document.activeElement)"):
                return
        raise AssertionError(f"Tab did not reach an element with {expression}")

    def wait(self, expression: str, *, seconds_max: float = 30) -> None:
        """Wait until a JavaScript expression is true. Raise AssertionError with the page's text after a timeout."""
        from selenium.common.exceptions import TimeoutException
        from selenium.webdriver.support.wait import WebDriverWait

        try:
            WebDriverWait(self.driver, seconds_max, 0.1).until(lambda _: self.run(expression))
        except TimeoutException:
            shown = self.run("document.body.innerText")
            raise AssertionError(f"not within {seconds_max:g} s: {expression}\n{shown}") from None

    @property
    def background(self) -> str:
        return str(self.run("getComputedStyle(document.body).backgroundColor"))

    def requests(self) -> list[str]:
        """Return the addresses that were requested since the page was opened."""
        messages = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        return [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """Run a Chromium with an empty profile, and yield Selenium's driver of it."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        install_tools()
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()
