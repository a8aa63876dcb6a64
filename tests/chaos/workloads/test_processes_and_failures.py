"""Tests of workloads when operations fail: with a library of scripted failures, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from kraft.sim.chaos.clients import OperationFailed
from kraft.sim.chaos.history import FINAL_READER, Function, HistoryEventType, HistoryRecorder, Place
from kraft.sim.chaos.scenarios.scenario import TOPIC, Scenario, ScenarioTopic, ScenarioWorkload
from kraft.sim.chaos.workloads import ClientWorkload
from kraft.sim.shapes import ClusterError
from tests.chaos.workloads.facts import acknowledged, completed, read_by, require_well_formed
from tests.chaos.workloads.libraries import ScriptedLibrary

PLACE = Place(TOPIC, 0)


class Bench:
    """A workload of one partition on a scripted library."""

    def __init__(self, *, is_lasting: bool = False, **workload: object) -> None:
        self.library = ScriptedLibrary()
        self.history = HistoryRecorder(lambda: int(trio.current_time() * 1e9))
        self.notes: list[str] = []
        scenario = Scenario(
            name="test",
            title="Test",
            topic=ScenarioTopic(partitions=1),
            workload=ScenarioWorkload(**{"producers": 0, "readers": 0, "rate": 10.0, **workload}),  # type: ignore[arg-type]
        )
        self.workload = ClientWorkload(
            self.library,
            "none:1",
            scenario,
            self.history,
            random.Random(1),
            self.notes.append,
            is_lasting=is_lasting,
        )

    async def run(self, seconds: float) -> None:
        until = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.workload.run, until)
            await trio.sleep(seconds)
            until.set()
        require_well_formed(self.history.events)
        assert not self.library.is_open

    def processes(self, f: Function) -> list[str]:
        return list(dict.fromkeys(event.process for event in self.history.events if event.f is f))


def info(error: str = "REQUEST_TIMED_OUT") -> OperationFailed:
    return OperationFailed(HistoryEventType.INFO, error)


def fail(error: str = "MESSAGE_TOO_LARGE") -> OperationFailed:
    return OperationFailed(HistoryEventType.FAIL, error)


async def test_a_producer_gets_a_new_process_name_and_a_new_client_after_an_unknown_outcome(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(producers=1)
    bench.library.fail("send", None, info())
    await bench.run(5)
    assert bench.processes(Function.SEND) == ["producer-0", "producer-0.1"]
    assert bench.library.opened == ["producer-0", "producer-0.1"]
    [unknown] = completed(bench.history.events, Function.SEND, HistoryEventType.INFO)
    assert (unknown.process, unknown.error) == ("producer-0", "REQUEST_TIMED_OUT")
    assert "producer-0.1/0" in acknowledged(bench.history.events).values()


async def test_a_producer_keeps_its_process_name_after_a_definite_failure(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(producers=1)
    bench.library.fail("send", None, fail())
    await bench.run(5)
    assert bench.library.opened == ["producer-0"]
    assert len(completed(bench.history.events, Function.SEND, HistoryEventType.FAIL)) == 1


async def test_a_fenced_producer_is_replaced(autojump_clock: trio.testing.MockClock) -> None:
    bench = Bench(producers=1)
    bench.library.fail("send", fail("INVALID_PRODUCER_EPOCH"))
    await bench.run(5)
    assert bench.library.opened == ["producer-0", "producer-0.1"]


async def test_producers_send_at_most_at_their_rate_and_fill_their_values(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(producers=2, rate=20.0, value_bytes=100)
    await bench.run(10)
    for number in range(2):
        sent = [value for value in bench.library.logs[PLACE] if value.startswith(b"producer-%d/" % number)]
        assert 190 <= len(sent) <= 201
        assert {len(value) for value in sent} == {100}
    assert "producer-0/3" in acknowledged(bench.history.events).values()


async def test_history_events_of_sends_without_idempotence_contain_acks_and_idempotent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(producers=1, acks="1")
    await bench.run(1)
    values = completed(bench.history.events, Function.SEND)[0].values
    assert (values["acks"], values["idempotent"]) == ("1", False)


async def test_an_operation_in_progress_at_the_end_is_cancelled_and_recorded_as_unknown(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(producers=1)

    async def hang(verb: str) -> None:
        if verb == "send":
            await trio.sleep_forever()

    bench.library.act = hang  # type: ignore[method-assign]
    await bench.run(2)
    [unknown] = completed(bench.history.events, Function.SEND, HistoryEventType.INFO)
    assert unknown.error == "given up at the end"


async def test_opening_a_workload_client_is_retried_until_it_succeeds(autojump_clock: trio.testing.MockClock) -> None:
    bench = Bench(producers=1, readers=1, topic_churn=1)
    for verb in ("producer", "consumer", "admin"):
        bench.library.fail(verb, info(), info())
    await bench.run(5)
    assert sorted(bench.library.opened) == ["churn-client-0", "producer-0", "reader-0"]


async def test_a_reader_restarts_with_an_assign_after_a_failed_poll(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(producers=1, readers=1)
    bench.library.fail("poll", None, info())
    await bench.run(5)
    assert bench.processes(Function.POLL) == ["reader-0", "reader-0.1"]
    first = next(event for event in bench.history.events if event.process == "reader-0.1")
    assert first.f is Function.ASSIGN
    assert first.values["places"] == [[TOPIC, 0]]
    assert read_by(bench.history.events, "reader-0.1")


async def test_a_rebalance_within_a_poll_is_recorded_before_the_polls_records(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(group_members=1)
    bench.library.logs[PLACE].extend([b"a", b"b"])
    bench.library.fail("poll", None, info("rebalance"))
    await bench.run(2)
    told = [event for event in bench.history.events if event.type is HistoryEventType.OK][:6]
    assert [event.f for event in told] == [
        Function.POLL,
        Function.COMMIT,
        Function.POLL,
        Function.ASSIGN,
        Function.POLL,
        Function.COMMIT,
    ]
    assert told[2].values["records"] == []
    assert told[3].values["places"] == [[TOPIC, 0]]
    assert told[4].values["records"] == [[TOPIC, 0, [[0, "a"], [1, "b"]]]]
    assert bench.workload.rebalances == 1
    assert bench.notes == ["members of the group were given 1 assignments"]


async def test_a_group_member_gets_a_new_process_name_and_keeps_its_client_after_an_unknown_commit(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(producers=1, group_members=1)
    bench.library.fail("commit", None, info("REBALANCE_IN_PROGRESS"))
    bench.library.logs[PLACE].append(b"first")
    await bench.run(5)
    assert bench.processes(Function.COMMIT) == ["member-0", "member-0.1"]
    assert [each for each in bench.library.opened if each.startswith("member")] == ["member-0"]


async def test_group_members_are_replaced_at_the_churn_interval(autojump_clock: trio.testing.MockClock) -> None:
    bench = Bench(group_members=2, group_churn_s=1.0)
    await bench.run(10)
    members = [each for each in bench.library.opened if each.startswith("member")]
    assert 7 <= len(members) <= 12
    assert len(set(members)) == len(members)


async def test_topic_churn_limits_operations_per_name_and_deletes_each_created_topic(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(topic_churn=4)
    bench.library.fail("create_topic", None, info("TOPIC_ALREADY_EXISTS"))
    await bench.run(200)
    begun = completed(bench.history.events, Function.CREATE_TOPIC, HistoryEventType.INVOKE)
    created = [event.values["topic"] for event in begun]
    ended = completed(bench.history.events, Function.DELETE_TOPIC, HistoryEventType.INVOKE)
    deleted = [event.values["topic"] for event in ended]
    assert sorted(created) == sorted(deleted)
    shared = [topic for topic in created if topic.startswith("churn-shared-")]
    assert len(set(shared)) > 1
    assert max(shared.count(topic) for topic in shared) <= 50
    assert completed(bench.history.events, Function.CREATE_TOPIC)[0].values["topic_id"] == "ab"


async def test_settling_a_workload_waits_for_another_successful_send_of_each_producer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(producers=2)
    bench.library.fail("send", *[info()] * 6)
    until = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.workload.run, until)
        assert not await bench.workload.settle(0.5)
        assert await bench.workload.settle(30)
        until.set()
    ok = {event.process.split(".")[0] for event in completed(bench.history.events, Function.SEND)}
    assert ok == {"producer-0", "producer-1"}


# the final reader


async def test_the_final_reader_continues_under_its_name_after_a_failed_poll(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench()
    bench.library.logs[PLACE].extend(b"%d" % number for number in range(25))
    bench.library.fail("poll", None, info())
    assert await bench.workload.read_everything(60)
    require_well_formed(bench.history.events)
    assert {event.process for event in bench.history.events} == {FINAL_READER}
    assert len(completed(bench.history.events, Function.POLL, HistoryEventType.FAIL)) == 1
    assert [value for _, value in sorted(read_by(bench.history.events).items())] == [str(n) for n in range(25)]


async def test_the_final_reader_waits_for_a_log_end_that_is_not_known_yet(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(producers=1)
    await bench.run(3)
    bench.library.ends_hidden = 5
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_reveal, bench.library)
        assert await bench.workload.read_everything(60)
    assert acknowledged(bench.history.events).items() <= read_by(bench.history.events).items()


async def _reveal(library: ScriptedLibrary) -> None:
    await trio.sleep(2)
    library.ends_hidden = 0


async def test_the_final_reader_finishes_although_acknowledged_records_are_lost(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(producers=1)
    await bench.run(3)
    bench.library.logs[PLACE].pop()
    assert await bench.workload.read_everything(60)
    assert len(acknowledged(bench.history.events).items() - read_by(bench.history.events).items()) == 1


@pytest.mark.parametrize("verb", ["consumer", "end_offsets", "assign", "poll"])
async def test_the_final_reader_fails_if_it_does_not_reach_the_end_in_time(
    autojump_clock: trio.testing.MockClock, verb: str
) -> None:
    bench = Bench()
    bench.library.logs[PLACE].append(b"first")
    bench.library.fail(verb, *[info()] * 1000)
    assert not await bench.workload.read_everything(20)
    require_well_formed(bench.history.events)
    assert not bench.library.is_open


# preparation


async def test_workload_preparation_retries_until_the_topic_exists(autojump_clock: trio.testing.MockClock) -> None:
    bench = Bench()
    bench.library.fail("create_topic", info(), fail("INVALID_REPLICATION_FACTOR"), fail("TOPIC_ALREADY_EXISTS"))
    bench.library.fail("partitions", info("UNKNOWN_TOPIC_OR_PARTITION"))
    await bench.workload.prepare()
    assert not bench.library.is_open
    assert not bench.history.events


@pytest.mark.parametrize(
    ("records", "failures", "expected"),
    [([b"old"], [], "delete it first"), ([], [fail("POLICY_VIOLATION")] * 1000, "POLICY_VIOLATION")],
)
async def test_failed_workload_preparation_reports_the_reason(
    autojump_clock: trio.testing.MockClock, records: list[bytes], failures: Sequence[OperationFailed], expected: str
) -> None:
    bench = Bench()
    bench.library.logs[PLACE].extend(records)
    bench.library.fail("create_topic", *failures)
    with pytest.raises(ClusterError, match=expected):
        await bench.workload.prepare()
    assert not bench.library.is_open


async def test_an_existing_topic_of_a_users_cluster_is_rejected_and_left_alone_by_the_run(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(is_lasting=True, group_members=1)
    bench.library.fail("create_topic", info("TOPIC_ALREADY_EXISTS"))
    with pytest.raises(ClusterError, match="kraft topics delete chaos --bootstrap-server none:1"):
        await bench.workload.prepare()
    assert not bench.library.is_open
    assert (bench.workload.made_topics, bench.workload.made_groups) == (frozenset(), ())


async def test_a_topic_created_by_the_run_belongs_to_it_even_before_it_is_in_sync(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench(is_lasting=True, group_members=1)
    bench.library.fail("create_topic", None, info("TOPIC_ALREADY_EXISTS"))
    bench.library.fail("partitions", info("UNKNOWN_TOPIC_OR_PARTITION"))
    await bench.workload.prepare()
    assert (bench.workload.made_topics, bench.workload.made_groups) == ({TOPIC}, ("chaos-group",))


async def test_churned_topics_in_a_lasting_cluster_have_names_unique_to_the_run(
    autojump_clock: trio.testing.MockClock,
) -> None:
    first, second = Bench(is_lasting=True, topic_churn=2), Bench(is_lasting=True, topic_churn=2)
    for bench in (first, second):
        await bench.run(20)
        begun = completed(bench.history.events, Function.CREATE_TOPIC, HistoryEventType.INVOKE)
        assert bench.workload.made_topics == {event.values["topic"] for event in begun} != frozenset()
    assert not first.workload.made_topics & second.workload.made_topics
