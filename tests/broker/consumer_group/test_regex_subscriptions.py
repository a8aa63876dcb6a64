"""Subscriptions by regular expression: when the topics are matched, and when they are matched again."""

from __future__ import annotations

from random import Random
from uuid import UUID

from kraft.broker.consumer_group.memory import INSTRUCTIONS_PER_NAME, RegexResolution, TopicSearch
from kraft.broker.consumer_group.records import RegexValue
from kraft.broker.consumer_group.resolving import NAMES_PER_STEP, REFRESH_INTERVAL_MIN_MS
from kraft.broker.consumer_group.subscriptions import subscribed_topics
from kraft.broker.regular_expressions import compile_expression
from kraft.broker.regular_expressions.parser import parse
from kraft.broker.regular_expressions.program import translate
from kraft.wire.error_codes import ErrorCode
from tests.broker.consumer_group.consumer_bench import ConsumerBench, TopicRow, TopicRows

TEN_MINUTES_MS = 600_000


def resolved(bench: ConsumerBench, regex: str) -> tuple[str, ...]:
    return bench.consumers.regexes[regex].topics


def test_the_first_reply_has_the_partitions_of_all_matching_topics() -> None:
    bench = ConsumerBench({"a1": 1, "a2": 2, "b": 3})
    reply = bench.enter("m", subscribed_regex="a.*")
    assert {topic_id.int: set(found) for topic_id, found in reply.assignment.items()} == {1: {0}, 2: {0, 1}}
    assert bench.consumers.regexes["a.*"] == RegexValue(("a1", "a2"), 0, bench.now.wall_ms)


def test_an_invalid_expression_is_refused_with_the_reason() -> None:
    bench = ConsumerBench()
    reply = bench.enter("m", subscribed_regex="a(")
    assert reply.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert reply.message
    assert not bench.log


def test_an_expression_and_names_add_up() -> None:
    bench = ConsumerBench({"a1": 1, "a2": 2, "b": 3})
    bench.enter("m", "b", subscribed_regex="a.*")
    assert subscribed_topics(bench.consumers) == {"a1", "a2", "b"}


def test_new_topics_are_matched_after_ten_seconds() -> None:
    bench = ConsumerBench({"a1": 1})
    bench.enter("m", subscribed_regex="a.*")
    bench.beat("m", 1)
    bench.set_topic("a2", 2)
    bench.sleep(9_999)
    assert bench.beat("m", 1).epoch == 1
    bench.sleep(1)
    assert bench.beat("m", 1).epoch == 2
    assert resolved(bench, "a.*") == ("a1", "a2")


def test_topics_are_matched_again_after_the_refresh_interval() -> None:
    bench = ConsumerBench({"a1": 1})
    bench.enter("m", subscribed_regex="a.*")
    bench.beat("m", 1)
    first, scans = bench.consumers.regexes["a.*"], bench.topics.scans
    for _ in range(TEN_MINUTES_MS // 30_000 - 1):
        bench.sleep(30_000)
        bench.beat("m", 1)
    assert bench.topics.scans == scans
    bench.sleep(30_000)
    bench.beat("m", 1)
    assert bench.topics.scans == scans + 1
    assert bench.consumers.regexes["a.*"] == first


def test_the_topics_of_an_unused_expression_are_removed() -> None:
    bench = ConsumerBench({"a": 1, "b": 1})
    bench.enter("one", subscribed_regex="a")
    bench.enter("two", subscribed_regex="a")
    bench.beat("one", 1, subscribed_regex="b")
    assert set(bench.consumers.regexes) == {"a", "b"}
    bench.beat("two", -1)
    assert set(bench.consumers.regexes) == {"b"}
    bench.enter("one", "a", subscribed_regex="")
    assert not bench.consumers.regexes


def test_a_long_search_goes_on_between_requests() -> None:
    names = {f"a{number:04}": 1 for number in range(2 * NAMES_PER_STEP + 10)}
    bench = ConsumerBench(names)
    assert bench.enter("m", subscribed_regex="a.*").assignment == {}
    assert not bench.consumers.regexes
    bench.sleep(1)
    assert not bench.consumers.regexes
    bench.sleep(1)
    assert len(resolved(bench, "a.*")) == len(names)
    assert len(bench.beat("m", 1).assignment or ()) == len(names)


def test_a_step_of_a_search_does_not_take_longer_when_the_expression_does() -> None:
    draws = Random(1)
    names = sorted("".join(draws.choices("ab", k=60)) for _ in range(20))
    text = "(a|b)*a(a|b){40}"
    expression, size = compile_expression(text), len(translate(text, parse(text)).instructions)
    search = RegexResolution(
        expression, TopicSearch(TopicRows({name: TopicRow(name, UUID(int=1), 1) for name in names}), lambda _: True)
    )
    executed = []
    while not search.is_over:
        before = expression.steps
        assert search.advance(100) >= 100 or search.is_over
        executed.append(expression.steps - before)
    assert len(executed) > len(names)
    assert max(executed) <= 100 * INSTRUCTIONS_PER_NAME + 2 * size
    assert search.found == [name for name in names if name[-41] == "a"]


def test_a_search_that_was_cut_off_by_a_move_begins_again() -> None:
    names = {f"a{number:04}": 1 for number in range(NAMES_PER_STEP + 10)}
    bench = ConsumerBench(names)
    bench.enter("m", subscribed_regex="a.*")
    bench.move()
    bench.beat("m", 1)
    bench.sleep(1)
    assert len(resolved(bench, "a.*")) == len(names)


def test_an_expression_is_resolved_again_when_its_record_was_not_written() -> None:
    bench = ConsumerBench({"a": 1})
    bench.enter("m", "b")
    bench.refuses_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.beat("m", 1, subscribed_regex="a")
    bench.refuses_appends = None
    assert bench.beat("m", 1, subscribed_regex="a").epoch == 2
    assert resolved(bench, "a") == ("a",)


def test_matches_are_found_again_when_the_join_of_a_classic_member_was_not_written() -> None:
    bench = ConsumerBench({"a1": 1, "orders": 1})
    classic = bench.join().reply.member_id
    bench.sync(classic, 1)
    bench.enter("m", subscribed_regex="a.*")
    classic = bench.join().reply.member_id
    bench.beat("m", 2)
    bench.set_topic("a2", 2)
    bench.sleep(REFRESH_INTERVAL_MIN_MS - 1)
    bench.join(classic)
    bench.sleep(1)
    bench.refuses_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.join(classic).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.refuses_appends = None
    bench.beat("m", bench.consumers.assignment_of("m").epoch, owned={})
    assert resolved(bench, "a.*") == ("a1", "a2")


def test_an_expression_of_a_broker_with_other_rules_matches_no_topic() -> None:
    bench = ConsumerBench({"a": 1})
    bench.enter("m", subscribed_regex="a")
    for index, record in enumerate(bench.log):
        key, value = record.key.replace(b"\0\1a", b"\0\1("), record.value
        if key[:2] == b"\0\5" and value is not None:
            value = value.replace(b"\1\2a", b"\1\2(")
        bench.log[index] = record._replace(key=key, value=value)
    bench.move_after_loss(len(bench.log))
    bench.set_topic("(", 1)
    assert bench.consumers.members["m"].subscribed_regex == "("
    bench.sleep(10_000)
    assert bench.beat("m", 1).error is ErrorCode.NONE
