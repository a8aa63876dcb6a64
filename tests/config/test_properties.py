"""The .properties format, as java.util.Properties describes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.config import ConfigError, parse_properties
from kraft.config.properties import render_properties

SAMPLE = r"""
# a comment
! another
node.id=1
process.roles = broker,controller
  log.dirs : /a,\
             /b
key\ with\=signs value text
empty
unicode=\u00e9
tab=\tx
escaped=C:\\data
last\
"""


def test_a_properties_file_is_parsed_as_by_java() -> None:
    assert parse_properties(SAMPLE) == {
        "node.id": "1",
        "process.roles": "broker,controller",
        "log.dirs": "/a,/b",
        "key with=signs": "value text",
        "empty": "",
        "unicode": "é",
        "tab": "\tx",
        "escaped": "C:\\data",
        "last": "",
    }


def test_the_last_of_two_equal_properties_keys_applies() -> None:
    assert parse_properties("a=1\na=2") == {"a": "2"}


def test_a_bad_escape_in_a_properties_file_is_reported_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"line 2"):
        parse_properties("a=1\nb=\\uzzzz")


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=20)


@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=5))
def test_rendered_properties_parse_to_the_same_pairs(pairs: dict[str, str]) -> None:
    assert parse_properties(render_properties(pairs, comment="made\nby a test")) == pairs
