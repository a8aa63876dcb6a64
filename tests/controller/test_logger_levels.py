"""Levels of a node's loggers: what cannot be set, and what is said of it."""

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
def test_a_level_that_cannot_be_set_is_refused_with_what_could_be(name: str, level: str, text: str) -> None:
    config = SimpleNamespace(name=name, value=level, config_operation=SET)
    resource = SimpleNamespace(resource_name="1", configs=[config])
    with pytest.raises(RefusedLevels, match=re.escape(text)):
        alter_loggers(1, resource, validate_only=True)
