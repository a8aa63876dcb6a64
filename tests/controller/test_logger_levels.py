"""Levels of a node's loggers: which levels are rejected, and with which error."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from kraft.control.configs.incremental import SET
from kraft.node.loggers.levels import RefusedLevels, alter_loggers


@pytest.mark.parametrize(
    ("name", "level", "text"),
    [
        ("kraft.quorm", "INFO", "there is no logger kraft.quorm; did you mean kraft.quorum?"),
        ("zookeeper", "INFO", "there is no logger zookeeper; the description names all"),
        ("kraft.quorum", "LOUD", "expected one of FATAL, ERROR, WARN, INFO, DEBUG, TRACE"),
    ],
)
def test_invalid_logger_level_is_rejected_with_an_error_that_lists_the_valid_levels(
    name: str, level: str, text: str
) -> None:
    config = SimpleNamespace(name=name, value=level, config_operation=SET)
    resource = SimpleNamespace(resource_name="1", configs=[config])
    with pytest.raises(RefusedLevels, match=re.escape(text)):
        alter_loggers(1, resource, validate_only=True)
