"""The events that a node logs: levels of its loggers, at start and at run time."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from kraft.deploy.launch.logs import configure_logs, parsed_logger_levels
from kraft.node.loggers.levels import set_level


@pytest.fixture
def _restored() -> Iterator[None]:
    root = logging.root.level
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.root.setLevel(root)
    for name in ("kraft.broker.fetch", "kraft.broker.produce"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.mark.usefixtures("_restored")
def test_a_logger_with_its_own_level_logs_only_events_of_that_level_or_above(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logs(
        "info", node_id=1, loggers=parsed_logger_levels(["kraft.broker.fetch=ERROR", "kraft.broker.produce=debug"])
    )
    for name in ("kraft.broker.fetch", "kraft.broker.produce", "kraft.broker.logs"):
        log = structlog.get_logger(name)
        log.debug(f"{name} debugs")
        log.warning(f"{name} warns")
    said = capfd.readouterr().err
    assert [name for name in ("fetch", "produce", "logs") if f"{name} warns" in said] == ["produce", "logs"]
    assert [name for name in ("fetch", "produce", "logs") if f"{name} debugs" in said] == ["produce"]


@pytest.mark.usefixtures("_restored")
def test_a_log_level_changed_at_runtime_applies_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logs("warning", node_id=1)
    log = structlog.get_logger("kraft.broker.fetch")
    log.info("before")
    set_level("kraft.broker.fetch", "INFO")
    log.info("while")
    set_level("kraft.broker.fetch", None)
    log.info("after")
    said = capfd.readouterr().err
    assert [word for word in ("before", "while", "after") if word in said] == ["while"]


@pytest.mark.parametrize("text", ["kraft", "=INFO", "kraft=loud"])
def test_an_invalid_logger_level_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected NAME=LEVEL"):
        parsed_logger_levels([text])
