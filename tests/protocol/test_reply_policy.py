"""Reply rules: which requests they apply to, how often, and which rules are invalid."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.wire.api_keys import ApiKey
from kraft.wire.messages.named_partitions import NamedPartition
from kraft.wire.reply_policy import (
    BadRule,
    ReplyAction,
    ReplyPolicy,
    ReplyRule,
    api_key_of,
    api_name,
    rule_fields,
    rule_from,
)
from kraft.wire.rpc import InternalKey

ORDERS_0 = [NamedPartition("orders", None, 0)]


def drop(**narrowed: Any) -> ReplyRule:
    return ReplyRule(**{"api_key": ApiKey.PRODUCE, "action": ReplyAction.DROP, **narrowed})


def asked(policy: ReplyPolicy, key: int = ApiKey.PRODUCE, client: str = "c", named: Any = ORDERS_0) -> bool:
    return policy.decide(key, client, lambda: named) is not None


def test_a_reply_policy_without_rules_applies_to_no_request() -> None:
    assert not asked(ReplyPolicy())


@pytest.mark.parametrize(
    ("rule", "is_taken"),
    [
        (drop(), True),
        (drop(api_key=None), True),
        (drop(api_key=ApiKey.FETCH), False),
        (drop(client_id="c"), True),
        (drop(client_id="d"), False),
        (drop(topic="orders"), True),
        (drop(topic="orders", partition=0), True),
        (drop(topic="orders", partition=1), False),
        (drop(topic="others"), False),
    ],
)
def test_a_reply_rule_applies_only_to_requests_that_match_it(rule: ReplyRule, is_taken: bool) -> None:
    policy = ReplyPolicy()
    policy.add(rule)
    assert asked(policy) is is_taken


def test_reply_rule_applies_as_often_as_configured_and_then_the_next_rule_applies() -> None:
    policy = ReplyPolicy()
    first = policy.add(drop(times=2))
    second = policy.add(ReplyRule(api_key=None, action=ReplyAction.CLOSE, times=1))
    taken = [policy.decide(ApiKey.PRODUCE, "", list) for _ in range(4)]
    assert [None if rule is None else rule.action.value for rule in taken] == ["drop", "drop", "close", None]
    assert policy.applied == {first: 2, second: 1}
    assert not policy.rules


def test_a_reply_policy_parses_partitions_only_if_a_rule_names_a_topic() -> None:
    policy = ReplyPolicy()
    policy.add(drop(api_key=ApiKey.FETCH, topic="orders"))

    def named() -> Any:
        raise AssertionError("not needed")

    assert policy.decide(ApiKey.PRODUCE, "", named) is None


def test_reply_rules_can_be_removed_one_by_one_or_all() -> None:
    policy = ReplyPolicy()
    one, two = policy.add(drop()), policy.add(drop())
    assert policy.remove(one)
    assert not policy.remove(one)
    assert [*policy.rules] == [two]
    policy.clear()
    assert not asked(policy)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"api": "Produce", "action": "explode"}, "no action"),
        ({"api": "Produce"}, "no action"),
        ({"api": "Prod", "action": "drop"}, r"no API 'Prod'; did you mean Produce\?"),
        ({"api": "Nonsense", "action": "error", "error": "OOPS"}, "no API 'Nonsense'; names are those of Kafka's"),
        ({"api": "Produce", "action": "error"}, "needs the error's name"),
        ({"api": "Produce", "action": "error", "error": "OOPS"}, "is no error code: give one of Kafka's names"),
        ({"api": "Produce", "action": "error", "error": "NOT_LEADER"}, r"did you mean NOT_LEADER_OR_FOLLOWER\?"),
        ({"api": "Produce", "action": "error", "error": "NOPE"}, "is no error code: give one of Kafka's names"),
        ({"action": "error", "error": "REQUEST_TIMED_OUT"}, "needs the API"),
        ({"api": "InternalVote", "action": "error", "error": "REQUEST_TIMED_OUT"}, "internal requests"),
        ({"api": "Produce", "action": "delay"}, "a delay is 1 to"),
        ({"api": "Produce", "action": "delay", "delay_ms": "soon"}, "whole number"),
        ({"api": "Produce", "action": "drop", "partition": 1}, "needs its topic"),
        ({"api": "Produce", "action": "drop", "times": 0}, "at least once"),
        ({"api": "Produce", "action": "drop", "topic": 5}, "a text"),
        ({"api": "Produce", "action": "drop", "tiems": 5}, "no tiems"),
    ],
)
def test_an_invalid_reply_rule_is_refused_with_the_reason(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRule, match=says):
        rule_from(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"action": "close"},
        {"api": "ListOffsets", "action": "error", "error": "REQUEST_TIMED_OUT", "after": True},
        {"api": "InternalMetadataFetch", "action": "delay", "delay_ms": 30, "times": 2},
        {"api": "Fetch", "action": "drop", "topic": "orders", "partition": 0, "client_id": "c"},
    ],
)
def test_reply_rule_converted_to_plain_values_and_back_is_unchanged(fields: dict[str, Any]) -> None:
    assert rule_fields(rule_from(fields)) == fields


def test_reply_rule_finds_every_api_by_its_name() -> None:
    for key in (*ApiKey, *InternalKey):
        assert api_key_of(api_name(key)) == key
        assert api_key_of(str(int(key))) == key
    assert api_key_of("list-offsets") == ApiKey.LIST_OFFSETS
