"""Tests of the toxics that implement the conditions of a direction: their values, the order of changes, and rejected
values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kraft.sim.chaos.proxies.errors import ToxiproxyError
from kraft.sim.chaos.proxies.toxics import (
    ATTRIBUTES,
    CLEAR,
    HELD_MS,
    ByteConditions,
    ConnectionPolicy,
    HangMode,
    Toxic,
    after_change,
    changes_between,
    is_held,
    toxics_of,
)


def toxics(
    way: ByteConditions, policy: ConnectionPolicy = ConnectionPolicy.OPEN, stream: str = "upstream"
) -> dict[str, Toxic]:
    return toxics_of(way, policy, stream)


def told(present: Mapping[str, Toxic], wanted: Mapping[str, Toxic], **options: bool) -> list[str]:
    return [f"{step.kind.value} {step.name}" for step in changes_between(present, wanted, **options)]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_a_toxic_has_default_values_for_attributes_that_are_not_given(name: str) -> None:
    assert Toxic(name).attributes == ATTRIBUTES[name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"type": "lag"},
            "no toxic 'lag': toxics are latency, bandwidth, slow_close, timeout, reset_peer, slicer, lim",
        ),
        ({"type": "latency", "attributes": {"delay": 1}}, "latency has no attribute 'delay': it has latency, jitter"),
        ({"type": "latency", "attributes": {"latency": -1}}, "whole number from 0 up, not -1"),
        ({"type": "bandwidth", "attributes": {"rate": 0.5}}, "whole number from 0 up, not 0.5"),
        ({"type": "timeout", "toxicity": 1.5}, "probability from 0 to 1, not 1.5"),
        ({"type": "timeout", "stream": "up"}, "upstream, downstream or empty"),
        ({"type": "slicer", "attributes": {"average_size": 4, "size_variation": 4}}, "size_variation < average_size"),
    ],
)
def test_an_invalid_toxic_is_rejected_with_the_valid_names(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ToxiproxyError, match=message):
        Toxic(**arguments)


def test_negative_conditions_of_a_direction_are_rejected() -> None:
    with pytest.raises(ToxiproxyError, match="0 or more"):
        ByteConditions(latency_ms=-1)


def test_a_direction_without_conditions_has_no_toxics() -> None:
    assert toxics(CLEAR) == {}


@pytest.mark.parametrize(("latency_ms", "jitter_ms"), [(0, 1), (100, 0), (100, 7), (5, 10), (0, 40)])
def test_jitter_of_a_direction_only_adds_to_its_latency(latency_ms: int, jitter_ms: int) -> None:
    attributes = toxics(ByteConditions(latency_ms=latency_ms, jitter_ms=jitter_ms))["latency"].attributes
    least, most = (attributes["latency"] + sign * attributes["jitter"] for sign in (-1, 1))
    assert latency_ms <= least <= most <= latency_ms + jitter_ms
    assert most == latency_ms + jitter_ms


@pytest.mark.parametrize(
    ("bytes_per_second", "rate"),
    [
        (1, Toxic("slicer", {"average_size": 1, "delay": 1_000_000})),
        (999, Toxic("slicer", {"average_size": 1, "delay": 1001})),
        (1000, Toxic("bandwidth", {"rate": 1})),
        (1499, Toxic("bandwidth", {"rate": 1})),
        (1500, Toxic("bandwidth", {"rate": 2})),
        (10_000_000, Toxic("bandwidth", {"rate": 10_000})),
    ],
)
def test_bytes_per_second_become_a_rate_in_thousands_or_pauses(bytes_per_second: int, rate: Toxic) -> None:
    assert list(toxics(ByteConditions(bytes_per_second=bytes_per_second)).values()) == [rate]


def test_a_hang_holds_closes_and_either_holds_or_drops_bytes() -> None:
    held = toxics(ByteConditions(is_hung=True, latency_ms=5))
    assert held["latency"].attributes["latency"] == held["close"].attributes["delay"] == HELD_MS
    dropped = toxics(ByteConditions(is_hung=True, manner=HangMode.DROP, latency_ms=5))
    assert dropped["drop"] == Toxic("timeout")
    assert dropped["latency"].attributes["latency"] == 5
    assert is_held(held)
    assert is_held(dropped)
    assert not is_held(toxics(ByteConditions(latency_ms=5)))


def test_a_toxic_of_one_stream_is_omitted_from_the_opposite_stream() -> None:
    way = ByteConditions(toxics=(Toxic("timeout", stream="upstream"), Toxic("slow_close")))
    assert set(toxics(way, stream="upstream")) == {"0-timeout", "0-slow_close"}
    assert set(toxics(way, stream="downstream")) == {"0-slow_close"}


def test_a_toxic_keeps_its_name_when_a_toxic_of_another_type_is_removed() -> None:
    slicer, close = Toxic("slicer"), Toxic("slow_close", {"delay": 5})
    assert told(toxics(ByteConditions(toxics=(slicer, close))), toxics(ByteConditions(toxics=(close,)))) == [
        "remove 0-slicer"
    ]
    both = toxics(ByteConditions(toxics=(close, replace(close, stream="upstream"))), stream="downstream")
    assert set(both) == {"0-slow_close"}


def test_a_hang_begins_after_other_toxic_changes_and_ends_before_them() -> None:
    slow, hung = toxics(ByteConditions(bytes_max=5)), toxics(ByteConditions(is_hung=True, bytes_per_second=5000))
    begin = ["remove limit", "add rate-bandwidth", "add close", "add latency"]
    assert told(slow, hung) == begin
    assert told(hung, slow) == ["update close", "update latency", "remove rate-bandwidth", "add limit"]


def test_toxics_change_during_a_hang_only_if_there_are_no_connections() -> None:
    hung, other = (
        toxics(ByteConditions(is_hung=True)),
        toxics(ByteConditions(is_hung=True, bytes_max=5), ConnectionPolicy.RESET),
    )
    assert told(hung, other) == []
    assert told(hung, other, has_connections=False) == ["add limit", "add reset"]


def test_toxics_that_hold_bytes_become_neutral_and_others_are_removed() -> None:
    present = toxics(
        ByteConditions(toxics=(Toxic("latency", {"latency": 5}), Toxic("slow_close", {"delay": 5}), Toxic("timeout")))
    )
    left = present
    for step in changes_between(present, {}):
        left = after_change(left, step)
    assert left == {"0-latency": Toxic("latency"), "0-slow_close": Toxic("slow_close")}
    assert changes_between(left, {}) == []
