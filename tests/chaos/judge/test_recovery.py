"""Tests of the checks after the heal, when all faults have ended: the cluster must work again, and so must every client
that worked before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kraft.sim.chaos.history import Function, HistoryEventType
from kraft.sim.chaos.judge import INVALID, UNKNOWN, VALID
from kraft.sim.chaos.judge.liveness import WHOLE_MS_MAX, LivenessFindings, find_not_whole
from kraft.sim.chaos.judge.operations import paired
from kraft.sim.chaos.judge.recovery import find_unavailable
from kraft.sim.chaos.judge.verdict import decide_verdict
from kraft.sim.chaos.run.run_folder import ClusterSample
from tests.chaos.judge.histories import HEALED_MS, HistoryBuilder, info_of, samples_of, steady_history

LATE_MS = HEALED_MS + WHOLE_MS_MAX + 21_000
INFO, OK = HistoryEventType.INFO, HistoryEventType.OK


def outcome(found: LivenessFindings) -> str:
    """Return the verdict for these findings: invalid, unknown or valid."""
    return INVALID if found.anomalies else UNKNOWN if found.reasons else VALID


# the cluster


def whole(*changes: tuple[float, dict[str, Any]], until_ms: float, **values: Any) -> str:
    return outcome(find_not_whole(info_of(**values), samples_of(*changes, until_ms=until_ms)))


NO_CONTROLLER = (9_000, {"controller": -1, "controller_epoch": -1})
NO_BROKER_2 = (9_000, {"brokers": (1, 3)})


@pytest.mark.parametrize("lacks", [NO_CONTROLLER, NO_BROKER_2])
def test_a_missing_controller_or_broker_is_an_anomaly_only_long_after_the_heal(lacks: Any) -> None:
    assert whole(lacks, until_ms=LATE_MS) == INVALID
    assert whole(lacks, until_ms=HEALED_MS + 10_000) == UNKNOWN
    assert whole(until_ms=LATE_MS) == VALID


def test_a_controller_and_a_broker_that_return_late_are_no_anomaly() -> None:
    back = (HEALED_MS + 8_000, {"controller": 101, "controller_epoch": 4, "brokers": (1, 2, 3)})
    assert whole(NO_CONTROLLER, NO_BROKER_2, back, until_ms=LATE_MS) == VALID


def test_a_run_without_a_controller_and_without_topic_creations_is_invalid() -> None:
    told = steady_history(until_ms=LATE_MS)
    samples = samples_of(NO_CONTROLLER, until_ms=LATE_MS)
    verdict = decide_verdict(info_of(duration_ms=LATE_MS, end_ms=LATE_MS), told.events, [], samples)
    assert verdict.verdict == INVALID
    assert verdict.anomalies[0].text == "there is no active controller 51 s after the heal"


def test_checks_catch_a_partition_that_is_no_longer_described() -> None:
    *before, last = samples_of(until_ms=LATE_MS)
    other = replace(last.partitions[0], partition=1)
    samples = [replace(one, partitions=(*one.partitions, other)) for one in before]
    assert outcome(find_not_whole(info_of(), [*samples, last])) == INVALID
    assert outcome(find_not_whole(info_of(application=("app",)), [*samples, last])) == VALID


def blind(sample: ClusterSample) -> ClusterSample:
    return ClusterSample(time_ms=sample.time_ms, controller=101)


SAMPLES = samples_of()
SEEN_BEFORE = [sample if sample.time_ms < HEALED_MS else blind(sample) for sample in SAMPLES]


@pytest.mark.parametrize("samples", [[], SAMPLES[:50], SEEN_BEFORE, [blind(sample) for sample in SAMPLES]])
def test_a_cluster_without_samples_after_the_heal_has_an_unknown_state(samples: Sequence[ClusterSample]) -> None:
    assert outcome(find_not_whole(info_of(), samples)) == UNKNOWN


def test_an_application_need_not_create_a_topic() -> None:
    samples = [replace(sample, partitions=()) for sample in SAMPLES]
    assert outcome(find_not_whole(info_of(application=("app",)), samples)) == VALID
    assert outcome(find_not_whole(info_of(), samples)) == UNKNOWN


def test_a_cluster_whose_controller_was_never_sampled_has_an_unknown_state() -> None:
    assert outcome(find_not_whole(info_of(), [replace(sample, controller=-1) for sample in SAMPLES])) == UNKNOWN


# clients

Tries = Sequence[tuple[float, HistoryEventType]]
BEFORE: Tries = [(1_000, OK), (2_000, OK)]
LONG: Tries = [(float(at_ms), INFO) for at_ms in range(11_000, 19_000, 1_000)]


def creations(tries: Tries, process: str = "churn-client-0") -> HistoryBuilder:
    told = HistoryBuilder()
    for number, (at_ms, type) in enumerate(tries):
        told.now_ms = at_ms
        error = "" if type is OK else "REQUEST_TIMED_OUT"
        name = process if at_ms < HEALED_MS else f"{process}.{number}"
        told.end(told.begin(name, Function.CREATE_TOPIC, topic=f"t{number}"), type, error)
    return told


def recovery(told: HistoryBuilder, **values: Any) -> LivenessFindings:
    return find_unavailable(info_of(**values), paired(told.events))


def test_checks_catch_a_client_that_can_create_no_topics_after_the_heal() -> None:
    found = recovery(creations([*BEFORE, *LONG]))
    assert [anomaly.text for anomaly in found.anomalies] == [
        "churn-client-0 had no success in the 10.0 s after the heal, of 8 creations of topics (REQUEST_TIMED_OUT)"
    ]


def test_a_client_that_creates_topics_again_under_a_later_process_name_has_recovered() -> None:
    assert outcome(recovery(creations([*BEFORE, *LONG, (19_500, OK)]))) == VALID


@pytest.mark.parametrize("tries", [LONG[:3], []])
def test_a_client_that_tried_too_briefly_or_never_after_the_heal_makes_the_verdict_unknown(tries: Tries) -> None:
    assert outcome(recovery(creations([*BEFORE, *tries]))) == UNKNOWN


def test_a_client_that_never_succeeded_and_ended_before_the_heal_is_not_judged() -> None:
    assert outcome(recovery(creations([(1_000, INFO)]))) == VALID


@pytest.mark.parametrize(("end_ms", "expected"), [(20_000.0, UNKNOWN), (LATE_MS, INVALID)])
def test_an_operation_open_for_longer_than_any_request_timeout_is_an_anomaly(end_ms: float, expected: str) -> None:
    told = creations(BEFORE)
    told.begin("churn-client-0", Function.CREATE_TOPIC, topic="t")
    assert outcome(recovery(told, duration_ms=end_ms)) == expected


def test_recovery_of_clients_is_not_judged_with_a_users_application() -> None:
    assert outcome(recovery(creations([*BEFORE, *LONG]), application=("app",))) == VALID


# readers


def reading(
    poll: Callable[[HistoryBuilder, int], object],
    process: str = "reader-0",
    is_written: bool = True,
    until_ms: int = 19_000,
) -> HistoryBuilder:
    """Write a history with a reader that receives a record before the heal. After the heal a record is acknowledged
    each second, and the reader continues to poll."""
    told = HistoryBuilder()
    told.assign(process)
    told.send("producer-0/0", 0)
    told.poll((0, "producer-0/0"), process=process)
    for number, at_ms in enumerate(range(11_000, until_ms, 1_000), start=1):
        told.now_ms = at_ms
        if is_written:
            told.send(f"producer-0/{number}", number)
        poll(told, number)
    return told


def of_reader(found: LivenessFindings, who: str = "reader-0") -> str:
    texts = [anomaly.text for anomaly in found.anomalies if anomaly.text.startswith(who)]
    return INVALID if texts else UNKNOWN if any(reason.startswith(who) for reason in found.reasons) else VALID


def fails(told: HistoryBuilder, number: int) -> None:
    told.end(told.begin(f"reader-0.{number}", Function.POLL), INFO, "REQUEST_TIMED_OUT")


def test_checks_catch_a_reader_whose_polls_fail_or_miss_acknowledged_records() -> None:
    assert of_reader(recovery(reading(fails))) == INVALID
    assert of_reader(recovery(reading(lambda told, number: told.poll()))) == INVALID


def test_a_reader_that_receives_records_or_has_none_to_receive_has_recovered() -> None:
    given = reading(lambda told, number: told.poll((number, f"producer-0/{number}")))
    assert of_reader(recovery(given)) == VALID
    assert of_reader(recovery(reading(lambda told, number: told.poll(), is_written=False))) == VALID


def test_a_reader_that_stopped_polling_makes_the_verdict_unknown() -> None:
    assert of_reader(recovery(reading(lambda told, number: None))) == UNKNOWN


# groups


def polls_as(*names: str, given: str = "") -> Callable[[HistoryBuilder, int], None]:
    def poll(told: HistoryBuilder, number: int) -> None:
        for name in names:
            told.poll(*([(number, f"producer-0/{number}")] if name == given else []), process=name)

    return poll


def test_a_group_member_without_records_has_recovered_if_another_member_reads_its_partition() -> None:
    late: dict[str, Any] = {"process": "member-0", "until_ms": 30_000}
    alone = recovery(reading(polls_as("member-0"), **late), duration_ms=30_000.0)
    assert of_reader(alone, "member-0") == INVALID
    taken_over = recovery(reading(polls_as("member-0", "member-1.2", given="member-1.2"), **late), duration_ms=30_000.0)
    assert of_reader(taken_over, "member-0") == VALID


def test_a_group_member_may_receive_nothing_until_a_missing_members_session_expires() -> None:
    assert of_reader(recovery(reading(polls_as("member-0"), process="member-0")), "member-0") == VALID


def commits(*tries: tuple[float, HistoryEventType]) -> HistoryBuilder:
    told = HistoryBuilder()
    for number, (at_ms, type) in enumerate(tries):
        told.now_ms = at_ms
        told.commit(f"member-{number % 2}.{number}", number, type)
    return told


@pytest.mark.parametrize(
    ("tries", "expected"),
    [
        ([(11_000, INFO), (26_000, INFO)], INVALID),
        ([(11_000, INFO), (15_000, INFO)], UNKNOWN),
        ([(11_000, INFO), (26_000, OK)], VALID),
        ([], UNKNOWN),
    ],
)
def test_checks_catch_a_group_that_cannot_commit_after_the_heal(tries: Tries, expected: str) -> None:
    assert outcome(recovery(commits((1_000, OK), *tries), duration_ms=30_000.0)) == expected


@pytest.mark.parametrize(("names", "expected"), [(["member-0.1", "member-0.2"], VALID), (["member-0.1"] * 2, UNKNOWN)])
def test_a_group_whose_members_are_replaced_after_the_heal_need_not_commit(names: list[str], expected: str) -> None:
    told = commits((1_000, OK))
    for at_ms, name in zip((11_000, 18_000), names, strict=True):
        told.now_ms = at_ms
        told.poll(process=name)
    assert outcome(recovery(told)) == expected


# clients without operations


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"producers": 2}, "The scenario wants 2 producers, and 1 of them had any operation."),
        ({"readers": 2}, "The scenario wants 2 readers, and 1 of them had any operation."),
        ({"group_members": 1}, "The scenario wants 1 members of the group, and 0 of them had any operation."),
        ({"topic_churn": 1}, "The scenario wants 1 clients that change topics, and 0 of them had any operation."),
        ({"producers": 1, "readers": 1}, ""),
    ],
)
def test_clients_of_the_scenario_without_any_operation_make_the_verdict_unknown(
    values: dict[str, int], missing: str
) -> None:
    verdict = decide_verdict(info_of(**values), steady_history().events, [], samples_of())
    assert verdict.reasons == ((missing,) if missing else ())
