"""Responses in which many topics have equal settings: an array is decoded once, and different arrays are
distinguished.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft.seam import WireError
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey

VERSION = 7
CLASS = messages.response_class(ApiKey.CREATE_TOPICS)
TOPIC = messages.nested_class(CLASS, "topics")
CONFIG = messages.nested_class(TOPIC, "configs")


def configs(*values: str) -> list[Any]:
    return [messages.build(CONFIG, name=f"name.{place}", value=value) for place, value in enumerate(values)]


def answer(*settings: list[Any] | None) -> Any:
    topics = [messages.build(TOPIC, name=f"topic-{place}", configs=one) for place, one in enumerate(settings)]
    return messages.build(CLASS, topics=topics)


def encoded(message: Any) -> bytes:
    return messages.encode_response(ApiKey.CREATE_TOPICS, VERSION, message)


def decoded(data: bytes) -> Any:
    return messages.decode_response(ApiKey.CREATE_TOPICS, VERSION, data)


TEN = [str(value) for value in range(10)]


def test_equal_arrays_decode_to_one_shared_value() -> None:
    made = answer(configs(*TEN), configs(*TEN), configs(*TEN))
    read = decoded(encoded(made))
    assert read == made
    first, second, third = (topic.configs for topic in read.topics)
    assert first is second is third


def test_arrays_with_a_common_prefix_are_distinguished() -> None:
    more, other, less = [*TEN, "10"], [*TEN[:9], "x"], TEN[:9]
    for values in (TEN, more, other, less):
        for then in (TEN, more, other, less, []):
            made = answer(configs(*values), configs(*then), None, configs(*values))
            assert decoded(encoded(made)) == made


def test_a_message_that_ends_within_a_cached_array_does_not_parse() -> None:
    data = encoded(answer(configs(*TEN)))
    decoded(data)
    for size in range(len(data)):
        with pytest.raises(WireError):
            decoded(data[:size])
