"""Tests of the optional clients of a run, one at a time: what each does, and that broken guarantees to it are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from kraft.broker.api import describe_configs
from kraft.broker.serving.config_entries import BrokerLayers
from kraft.broker.serving.dynamic_configs import DynamicConfigs
from kraft.control.configs import incremental as alter_configs
from kraft.control.decide import ADMIN as DECISIONS
from kraft.image import ConfigResourceType
from kraft.sim.check.base import Finding
from kraft.sim.cluster.altered_settings import SettingKey
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis.drawn_clients import CLOSED_LOOP_RECORDS, RARE_CLIENTS, SMALL_TOPICS_COUNT
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import (
    ADMIN,
    CLOSED_LOOP,
    CONFIGURER,
    CREATE_SMALL,
    DELETE,
    DELETE_BROKER_CONFIG,
    ELECT_PREFERRED,
    ELECTOR,
    EXTRA,
    IDEMPOTENT,
    OVERRIDES,
    PRODUCERS,
    RETAINER,
    RETENTION_CHECK,
    SEND,
    SET_BROKER_CONFIG,
    SET_CONFIG,
    SET_RETENTION,
    SMALL_TOPICS,
    Fault,
    Plan,
    PlannedOperation,
)
from kraft.sim.nemesis.swarm import draw_plan
from kraft.sim.run.run import ClusterRun, RunResult, RunSettings, Signature
from kraft.sim.run.shrink import Shrinker
from kraft.sim.workload import small_topics
from kraft.sim.workload.configurer_work import SETTINGS
from kraft.sim.workload.small_topics import SmallTopics
from kraft.storage.log import Log
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.tables import replace_row

SHAPE = ClusterShape(controllers=1, overrides=OVERRIDES)
DRAWN = FaultSettings(duration_ms=20_000)


def finished(
    client: str, *work: PlannedOperation, faults: tuple[Fault, ...] = (), duration_ms: int = 1_500
) -> ClusterRun:
    run = ClusterRun(
        1, RunSettings(plan=Plan(duration_ms=duration_ms, shape=SHAPE, faults=faults, work={client: work}))
    )
    run.run()
    return run


def carry_out(
    client: str, *work: PlannedOperation, faults: tuple[Fault, ...] = (), duration_ms: int = 1_500
) -> ClusterRun:
    run = finished(client, *work, faults=faults, duration_ms=duration_ms)
    assert not found_by(run), found_by(run)[0]
    return run


def found_by(run: ClusterRun) -> list[Finding]:
    return [*run.report.findings, *(found for check in run.checks for found in check.findings)]


def told(run: ClusterRun, client: str) -> list[tuple[str, str]]:
    return [(each.text, each.outcome) for each in run.chronicle.operations if each.client == client]


# small topics

TWENTY = tuple(PlannedOperation(0, CREATE_SMALL, number, number) for number in range(20))
TWO_EACH = tuple(PlannedOperation(100, SEND, number % 20, 10) for number in range(40))


def test_many_small_topics_are_created_in_one_request_and_read_back() -> None:
    run = carry_out(SMALL_TOPICS, *TWENTY, *TWO_EACH)
    creations = [line for line in told(run, SMALL_TOPICS) if line[0].startswith("creates")]
    assert creations == [("creates 20 topics", "20 are there")]
    topics = [topic for topic in run.cluster.image.topics if topic.name.startswith("small-")]
    assert Counter(len(topic.partition(0).replicas) for topic in topics) == {2: 7, 3: 13}
    assert run.final is not None
    assert {name: len(records) for (name, _), records in run.final.records.items()} == {
        f"small-{number}": 2 for number in range(20)
    }


def test_small_topics_that_a_request_did_not_create_are_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    original = small_topics.ask_any_once

    async def half(client: Any, key: Any, *, topics: list[Any], **fields: Any) -> Any:
        return await original(client, key, topics=topics[: (1 + len(topics)) // 2], **fields)

    monkeypatch.setattr(small_topics, "ask_any_once", half)
    run = carry_out(SMALL_TOPICS, *TWENTY[:8], *TWO_EACH[:8], duration_ms=2_500)
    creations = [line for line in told(run, SMALL_TOPICS) if line[0].startswith("creates")]
    rounds = ((8, 4), (4, 2), (2, 1), (1, 1))
    assert creations == [(f"creates {left} topics", f"{there} are there") for left, there in rounds]
    assert run.workload.acknowledged_of(SMALL_TOPICS) == 8


def test_checks_catch_a_missing_small_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    def reported_too_many(self: SmallTopics, *_: object) -> int:
        self.created["small-77"] = None
        return 3

    monkeypatch.setattr(SmallTopics, "_replication_factor", reported_too_many)
    run = finished(SMALL_TOPICS, *TWENTY[:2], *TWO_EACH[:2])
    assert {found.check for found in found_by(run)} == {"M11"}


def test_checks_catch_a_lost_or_duplicate_record_of_a_small_topic() -> None:
    run = carry_out(SMALL_TOPICS, *TWENTY[:2], *TWO_EACH[:2])
    assert run.final is not None
    records = run.final.records["small-1", 0]
    records[7] = records[0]
    run.workload.judge(run.final)
    assert {found.check for found in found_by(run)} == {"T1"}
    records.clear()
    run.workload.judge(run.final)
    assert {found.check for found in found_by(run)} == {"T1", "L10"}


# the closed-loop producer


def test_a_closed_loop_producer_sends_a_record_as_soon_as_the_previous_one_is_answered() -> None:
    run = carry_out(CLOSED_LOOP, *[PlannedOperation(0, SEND, 0)] * 30)
    sends = [each for each in run.chronicle.operations if each.client == CLOSED_LOOP]
    assert len(sends) == 30
    assert all(one.end_ms is not None and one.end_ms <= other.at_ms for one, other in pairwise(sends))
    assert run.workload.acknowledged_of(CLOSED_LOOP) == 30


def test_open_loop_producers_have_several_records_in_flight() -> None:
    run = carry_out(IDEMPOTENT, *[PlannedOperation(0, SEND, 0)] * 30)
    sends = [each for each in run.chronicle.operations if each.client == IDEMPOTENT]
    assert sends[29].at_ms < (sends[0].end_ms or 0)


# settings of brokers


def change(at_ms: int, broker: int, name: str, *, verb: str = SET_BROKER_CONFIG) -> PlannedOperation:
    """Change a setting; `broker` 0: of all brokers."""
    return PlannedOperation(at_ms, verb, broker, next(at for at, setting in enumerate(SETTINGS) if setting[0] == name))


CHANGES = (
    change(0, 0, "log.index.interval.bytes"),
    change(100, 2, "log.index.interval.bytes"),
    change(200, 0, "message.max.bytes"),
    change(300, 0, "message.max.bytes", verb=DELETE_BROKER_CONFIG),
    change(400, 3, "log.flush.interval.ms"),
)


def test_brokers_use_and_report_changed_settings() -> None:
    killed = Fault(at_ms=50, kind="kill", node=2, back_ms=500)
    run = carry_out(CONFIGURER, *CHANGES, faults=(killed,), duration_ms=3_000)
    assert run.configurer.changed == len(CHANGES)
    assert run.configurer.compared == 3 * len({name for name, _ in SETTINGS})


def test_checks_catch_a_broker_that_does_not_apply_a_changed_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DynamicConfigs, "_broker_settings_changed", lambda *_: None)
    assert {found.check for found in found_by(finished(CONFIGURER, *CHANGES))} == {"M9"}


def test_checks_catch_a_broker_that_caches_a_topics_old_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    original = DynamicConfigs._broker_settings_changed

    def twin(self: DynamicConfigs, image: object) -> None:
        topics = dict(self._topics)
        original(self, image)  # type: ignore[arg-type]
        self._topics.update(topics)

    monkeypatch.setattr(DynamicConfigs, "_broker_settings_changed", twin)
    assert {found.check for found in found_by(finished(CONFIGURER, *CHANGES))} == {"M9"}


def test_checks_catch_a_broker_that_reports_a_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has applied the change, but reports the value with which it started."""
    monkeypatch.setattr(describe_configs, "_layers", lambda broker: BrokerLayers({}, {}, broker.dynamic_configs.static))
    assert {found.text for found in found_by(finished(CONFIGURER, *CHANGES))} == {
        "a broker tells another setting than the metadata say"
    }


def thrown_away(count: int) -> Callable[..., Any]:
    """Planted bug: of the requests that change settings, `count` are answered with success and not carried out."""
    original, left = alter_configs.decide_incremental_alter_configs, [count]

    def twin(image: Any, context: Any, command: Any) -> Any:
        decision = original(image, context, command)
        if not decision.events or not left[0]:
            return decision
        left[0] -= 1
        return replace(decision, events=())

    return twin


def plant_throwing_away(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    replace_row(monkeypatch, DECISIONS, ApiKey.INCREMENTAL_ALTER_CONFIGS, thrown_away(count))


def test_checks_catch_a_lost_acknowledged_broker_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_throwing_away(monkeypatch, 1)
    assert {found.check for found in found_by(finished(CONFIGURER, *CHANGES))} == {"M11"}


# settings of topics

SETTINGS_OF_A_TOPIC = (
    PlannedOperation(0, SET_CONFIG, 0, 0),  # a missing topic is created
    *(PlannedOperation(200 * (1 + each), SET_CONFIG, 0, each) for each in range(3)),
)
"""Changes of a topic's setting: min.insync.replicas becomes 1, and then 2."""


def test_topic_settings_are_read_at_each_acknowledgement_and_at_the_end() -> None:
    run = carry_out(ADMIN, *SETTINGS_OF_A_TOPIC)
    assert run.cluster.image.topic_configs("extra-1")["min.insync.replicas"] == "2"
    assert read_of_settings(run) == 3 + 2 + len(run.plan.topic_configs) * 2


def read_of_settings(run: ClusterRun) -> int:
    return sum(check.seen for check in run.checks if check.id == "M11")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_checks_catch_a_lost_acknowledged_topic_setting(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The loss is found also if another value follows, because the setting is read before that."""
    plant_throwing_away(monkeypatch, count)
    found = found_by(finished(ADMIN, *SETTINGS_OF_A_TOPIC))
    assert {one.check for one in found} == {"M11"}
    assert "min.insync.replicas" in str(found[0])


def test_checks_catch_a_setting_lost_after_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    run = carry_out(ADMIN, *SETTINGS_OF_A_TOPIC)
    run.settings._reads.append((SettingKey(2, "extra-1", "min.insync.replicas"), run.world.now_ns + 2, "1"))
    run.settings.judge(run.registrars.checks)
    assert {one.check for one in found_by(run)} == {"M11"}


def test_a_recreated_topic_has_no_settings_of_the_deleted_topic() -> None:
    again = (PlannedOperation(900, DELETE, 0), PlannedOperation(1_200, SET_CONFIG, 0, 0))
    run = carry_out(ADMIN, *SETTINGS_OF_A_TOPIC, *again, duration_ms=2_000)
    assert "extra-1" in run.admin.living
    assert not run.cluster.image.topic_configs("extra-1")
    run.settings._removals.clear()
    run.settings.judge(run.registrars.checks)
    assert {one.check for one in found_by(run)} == {"M11"}, "the deletion is what took them"


def test_a_request_to_change_a_setting_of_an_unknown_topic_counts_as_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(image: Any, context: Any, command: Any) -> Any:
        (asked,) = command.request.resources
        return replace(
            alter_configs.decide_incremental_alter_configs(image, context, command),
            events=(),
            reply=alter_configs._response(
                [
                    (
                        alter_configs._Resource(asked.resource_type, asked.resource_name),
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        "there is no such topic",
                    )
                ]
            ),
        )

    replace_row(monkeypatch, DECISIONS, ApiKey.INCREMENTAL_ALTER_CONFIGS, twin)
    run = carry_out(ADMIN, *SETTINGS_OF_A_TOPIC)
    assert [outcome for _, outcome in told(run, ADMIN)] == ["done", *["UNKNOWN_TOPIC_OR_PARTITION"] * 3]
    assert run.admin.done == 1


def test_a_lost_answer_leaves_the_change_of_a_setting_undecided() -> None:
    """If the second request has no answer and was handled, either of the two requested values may hold."""
    run = carry_out(ADMIN, *SETTINGS_OF_A_TOPIC)
    setting = SettingKey(2, "extra-1", "min.insync.replicas")
    run.settings._reads.append((setting, run.world.now_ns + 2, "7"))
    asked = run.settings.ask(ADMIN, ConfigResourceType.TOPIC, "extra-1", {"min.insync.replicas": "7"})
    asked.called_ns -= 1_000_000
    run.cluster.watch.altered[setting, "7"] += 1
    run.settings.judge(run.registrars.checks)
    assert not found_by(run)
    run.cluster.watch.altered[setting, "7"] -= 1
    run.settings.judge(run.registrars.checks)
    assert {one.check for one in found_by(run)} == {"M11"}, "nobody ever handled it"


# requested elections


def test_a_restarted_preferred_leader_leads_again_on_request() -> None:
    """Elections of all three partitions are requested, in their order; broker 1 is the preferred leader of one
    of them."""
    killed = Fault(at_ms=0, kind="kill", node=1, back_ms=300)
    asks = [PlannedOperation(2_500 + 100 * partition, ELECT_PREFERRED, partition) for partition in range(3)]
    run = carry_out(ELECTOR, *asks, faults=(killed,), duration_ms=4_000)
    outcomes = Counter(outcome == "done" for _, outcome in told(run, ELECTOR))
    assert outcomes == {True: run.elector.elected, False: 3 - run.elector.elected}
    assert run.elector.elected == 1


# retention

RETAINED = (
    *(PlannedOperation(0, SET_CONFIG, slot, 1) for slot in range(2)),  # a missing topic is created
    PlannedOperation(200, SET_RETENTION, 0, 0),
    PlannedOperation(250, SET_RETENTION, 1, 1),
)
WRITTEN = tuple(PlannedOperation(at_ms, SEND, at_ms % 2, 150) for at_ms in range(400, 2_400, 25))


def retained() -> ClusterRun:
    shape = ClusterShape(controllers=1, overrides={**OVERRIDES, RETENTION_CHECK: "500"})
    work = {ADMIN: RETAINED[:2], RETAINER: RETAINED[2:], EXTRA: WRITTEN}
    run = ClusterRun(1, RunSettings(plan=Plan(duration_ms=4_000, shape=shape, work=work)))
    run.run()
    return run


def test_retention_deletes_the_oldest_segments_down_to_its_limit() -> None:
    run = retained()
    assert not found_by(run), found_by(run)[0]
    assert all(run.retainer.deleted[name] > 0 for name in ("extra-1", "extra-2")), run.retainer.deleted
    assert run.retainer.judged >= 6


def test_checks_catch_a_log_longer_than_its_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "deletable_segments", lambda *_: [])
    assert {found.check for found in found_by(retained())} == {"L11"}


# drawing


def test_each_optional_client_is_in_some_drawn_worlds_but_in_none_with_kafkas_defaults() -> None:
    plans = [draw_plan(seed, DRAWN) for seed in range(1, 81)]
    for client in RARE_CLIENTS:
        worlds = [plan.seed for plan in plans if client in plan.work]
        assert 8 <= len(worlds) <= 32, client
        assert all(seed % 4 for seed in worlds), client


def test_the_number_of_operations_of_an_optional_client_has_a_maximum_for_any_run_length() -> None:
    for seed in range(1, 41):
        work = draw_plan(seed, FaultSettings(duration_ms=60_000)).work
        created = [each for each in work.get(SMALL_TOPICS, ()) if each.verb == CREATE_SMALL]
        assert len(created) <= SMALL_TOPICS_COUNT[1]
        assert len({each.at_ms for each in created}) <= 1
        assert len(work.get(SMALL_TOPICS, ())) <= 5 * SMALL_TOPICS_COUNT[1]
        assert len(work.get(CLOSED_LOOP, ())) <= 30 * CLOSED_LOOP_RECORDS[1]


def test_in_worlds_with_a_hot_partition_most_records_go_to_it() -> None:
    shares = []
    for seed in (seed for seed in range(1, 61) if seed % 4):
        plan = draw_plan(seed, DRAWN)
        targets = Counter(operation.target for name in PRODUCERS for operation in plan.work[name])
        shares.append(max(targets.values()) / targets.total())
        assert shares[-1] < 0.6 or "internal.segment.bytes" in plan.topic_configs
    hot = sum(share > 0.7 for share in shares)
    assert 5 <= hot <= 20
    assert sum(0.5 < share <= 0.7 for share in shares) <= 5


def test_shrinking_removes_optional_clients_and_changes_only_amounts_of_sends() -> None:
    """The planted failure needs two small topics, one of which has one more replica, and one record."""
    created = (PlannedOperation(0, CREATE_SMALL, 0, 1), PlannedOperation(0, CREATE_SMALL, 1, 2))
    work = {
        SMALL_TOPICS: (
            *created,
            PlannedOperation(0, CREATE_SMALL, 2, 0),
            PlannedOperation(5, SEND, 1, 40),
            PlannedOperation(6, SEND, 0, 9),
        ),
        CLOSED_LOOP: (PlannedOperation(0, SEND, 0),) * 5,
        CONFIGURER: CHANGES,
        ELECTOR: (PlannedOperation(0, ELECT_PREFERRED, 1),),
        RETAINER: (PlannedOperation(0, SET_RETENTION, 1, 1),),
    }

    def run(plan: Plan, failure: Signature) -> RunResult:
        left = plan.work.get(SMALL_TOPICS, ())
        fails = set(created) <= set(left) and any((each.verb, each.target) == (SEND, 1) for each in left)
        found = (Finding(failure.check, 1, 10, failure.text, {}),) if fails else ()
        return RunResult(plan, found, (), {}, {}, (), (), "", (), 20, 0)

    shrinker = Shrinker(Plan(duration_ms=5, shape=SHAPE, work=work), Signature("L10", "lost"), run=run)
    list(shrinker.steps())
    assert shrinker.smallest.work == {SMALL_TOPICS: (*created, PlannedOperation(0, SEND, 1, 0))}
