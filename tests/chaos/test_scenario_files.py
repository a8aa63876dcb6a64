"""Tests of scenario files: the files in the package are complete, and error messages name the place in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.sim.chaos.scenarios.drawn_faults import MAY_LOSE_RECORDS, faults_of_run
from kraft.sim.chaos.scenarios.fault_tables import KINDS, planned_end_ms
from kraft.sim.chaos.scenarios.scenario import Scenario, ScenarioError
from kraft.sim.chaos.scenarios.scenario_file import (
    BUILT_IN,
    FOLDER,
    WORK_AFTER_FAULTS_MS,
    builtin_scenarios,
    parse_scenario,
    read_scenario,
    with_duration,
)
from kraft.sim.nemesis import plan
from kraft.sim.simulated_cluster import SimulatedCluster

KILL = '[[fault]]\nat_s = 1\nkind = "kill"\nnode = 1\n'
CUT = '[[fault]]\nat_s = 1\nkind = "cut"\nlasts_s = 1\n'
TIMEOUT = '[[fault]]\nat_s = 1\nkind = "timeout"\nnode = "clients"\ntimeout_ms = 0\nlasts_s = 1\n'
SLICER = '[[fault]]\nat_s = 1\nkind = "slicer"\nrole = "leader"\naverage_bytes = 10\nlasts_s = 1\n'
CORE = {"broker-crash", "controller-crash", "isolate-leader", "paused-leader", "rolling-restart"}


def refusal(text: str) -> str:
    with pytest.raises(ScenarioError) as problem:
        parse_scenario(text, "mine")
    return str(problem.value)


# built-in files


def test_every_built_in_scenario_file_is_valid_and_documented() -> None:
    scenarios = builtin_scenarios()
    assert [scenario.name for scenario in scenarios] == list(BUILT_IN)
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(BUILT_IN)
    assert {scenario.name for scenario in scenarios if scenario.is_core} == CORE
    assert len({scenario.title for scenario in scenarios}) == len(BUILT_IN)


@pytest.mark.parametrize("scenario", builtin_scenarios(), ids=lambda scenario: scenario.name)
def test_a_built_in_scenario_has_expectations_and_time_to_work_after_its_faults(scenario: Scenario) -> None:
    assert scenario.about
    assert scenario.text.startswith("# ")
    assert "# Must hold: " in scenario.text
    assert 20_000 <= scenario.duration_ms <= 30_000
    assert scenario.faults or scenario.random_faults
    assert all(planned_end_ms(one.fault) + WORK_AFTER_FAULTS_MS <= scenario.duration_ms for one in scenario.faults)


# reading


def test_a_scenario_file_is_read_with_all_its_values() -> None:
    scenario = parse_scenario(
        """
        title = "Mine"
        about = "All of it"
        duration_s = 12.5
        core = true
        [cluster]
        controllers = 1
        brokers = 4
        [cluster.settings]
        "broker.session.timeout.ms" = "4000"
        [topic]
        partitions = 2
        replicas = 2
        [topic.configs]
        "min.insync.replicas" = "1"
        [workload]
        producers = 1
        rate = 7
        acks = "1"
        value_bytes = 100
        readers = 0
        group_members = 2
        group_churn_s = 0.5
        topic_churn = 1
        [expects]
        allowed = ["lost write"]
        must_find = ["unseen"]
        gap_s_max = 1.5
        [[fault]]
        at_s = 2.5
        kind = "latency"
        node = 2
        other = 3
        latency_ms = 40
        jitter_ms = 5
        lasts_s = 3
        evidence = ["refusals", "fact:connections ended"]
        [[fault]]
        at_s = 1
        kind = "isolate"
        role = "active controller"
        manner = "refuse"
        lasts_s = 1
        """,
        "mine",
    )
    assert (scenario.name, scenario.title, scenario.about) == ("mine", "Mine", "All of it")
    assert (scenario.duration_ms, scenario.is_core) == (12_500, True)
    assert (scenario.cluster.controllers, scenario.cluster.brokers) == (1, 4)
    assert scenario.cluster.settings == {"broker.session.timeout.ms": "4000"}
    assert (scenario.topic.partitions, scenario.topic.replicas) == (2, 2)
    assert scenario.topic.configs == {"min.insync.replicas": "1"}
    work = scenario.workload
    assert (work.producers, work.rate, work.acks, work.idempotent, work.value_bytes) == (1, 7.0, "1", False, 100)
    assert (work.readers, work.group_members, work.group_churn_s, work.topic_churn) == (0, 2, 0.5, 1)
    expects = scenario.expects
    assert (expects.allowed, expects.must_find, expects.gap_ms_max) == (("lost write",), ("unseen",), 1_500)
    first, second = scenario.faults
    assert first.fault == plan.Fault(
        at_ms=1_000, kind="isolate", role="active controller", manner="refuse", duration_ms=1_000
    )
    assert second.fault == plan.Fault(
        at_ms=2_500, kind="latency", node=2, other=3, amount=40, jitter_ms=5, duration_ms=3_000
    )
    assert second.evidence == ("refusals", "fact:connections ended")


@pytest.mark.parametrize(
    ("key", "kind", "value"),
    [
        ("step_ms", "clock", -300_000),
        ("latency_ms", plan.LATENCY, 20),
        ("bytes_per_second", plan.SLOW_LINK, 1_000),
        ("bytes", plan.BYTE_LIMIT, 4_000),
        ("times", "stumble", 2),
        ("average_bytes", plan.SLICER, 30),
        ("delay_ms", plan.SLOW_CLOSE, 500),
        ("timeout_ms", plan.TIMEOUT, 0),
        ("after_ms", plan.RESET_PEER, 0),
    ],
)
def test_scenario_amounts_are_read_from_keys_with_their_unit(key: str, kind: str, value: int) -> None:
    lasts = "" if kind == "clock" else "lasts_s = 1"
    text = f'[[fault]]\nat_s = 1\nkind = "{kind}"\nnode = 1\n{lasts}\n{key} = {value}\n'
    (one,) = parse_scenario(text, "mine").faults
    assert one.fault.amount == value
    missing = text.replace(f"{key} = {value}", "")
    assert f"[[fault]] 1 ({kind}): {key} is missing" in refusal(missing)
    assert f"{key} is of a fault of kind '{kind}'" in refusal(f"{KILL}{key} = {value}")


def test_every_fault_kind_of_scenario_files_is_possible_on_some_cluster() -> None:
    assert set(SimulatedCluster.fault_kinds) <= set(KINDS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("title = ", "mine: this is not TOML: "),
        ("tilte = 'x'", "mine: the file: unknown key 'tilte': did you mean 'title'?"),
        ("zzzz = 1", "mine: the file: unknown key 'zzzz': known keys are title, about, duration_s"),
        ("title = 1", "the file: title must be a text, and is 1"),
        ("core = 1", "the file: core must be true or false, and is 1"),
        ("duration_s = 0", "the file: duration_s must be a number of seconds, 1 or more, and is 0"),
        ("duration_s = nan", "duration_s must be a number of seconds, 1 or more"),
        ("duration_s = true", "duration_s must be a number of seconds, 1 or more, and is True"),
        ("duration_s = 1e9", "duration_s must be a number of seconds, a day (86400) at most"),
        ("cluster = 3", "[cluster] must be a table, and is 3"),
        ("[cluster]\nbrokers = 0", "[cluster]: brokers must be a whole number, 1 or more, and is 0"),
        ("[cluster]\nbrokers = '3'", "[cluster]: brokers must be a whole number, 1 or more, and is '3'"),
        ("[cluster]\nbrokers = 3.0", "[cluster]: brokers must be a whole number, 1 or more, and is 3.0"),
        ("[cluster]\ncombined = 3\nbrokers = 3", "combined nodes, or controllers and brokers: not both"),
        ("[cluster.settings]\nbroker.session.timeout.ms = '1'", "settings must be a table of texts"),
        ("[cluster.settings]\n'num.partitions' = 6", "settings must be a table of texts"),
        ("[cluster.settings]\n'num.partitons' = '6'", "[cluster.settings]: "),
        ("[topic]\nreplicas = 4", "[topic]: replicas is 4, and the cluster has 3 brokers"),
        ("[topic.configs]\n'min.insync.replicas' = 'two'", "[topic.configs]: "),
        ("[workload]\nprodcers = 3", "[workload]: unknown key 'prodcers': did you mean 'producers'?"),
        ("[workload]\nrate = 0", "[workload]: rate must be a number, 0.1 or more, and is 0"),
        ("[workload]\nacks = 1", "[workload]: acks must be one of 'all', '1', '0', and is 1"),
        ("[workload]\nacks = '1'\nidempotent = true", 'an idempotent producer has acks = "all"'),
        ("[workload]\ngroup_churn_s = 1", "[workload]: group_churn_s needs group_members"),
        ("[expects]\nallowed = 'unseen'", "[expects]: allowed must be a list of names of inconsistent offsets"),
        ("[expects]\nallowed = ['lost writes']", "(did you mean 'lost write'?)"),
        ("fault = 1", "faults are tables that begin with [[fault]], and not 1"),
        ("fault = [1]", "[[fault]] 1 must be a table, and is 1"),
        ("[[fault]]\nkind = 'kill'", "[[fault]] 1: at_s is missing"),
        ("[[fault]]\nat_s = 1", "[[fault]] 1: kind is missing"),
        ("[[fault]]\nat_s = -1", "[[fault]] 1: at_s must be a number of seconds, 0 or more, and is -1"),
        ("[[fault]]\nat_s = 1\nkind = 'kil'", "(did you mean 'kill'?)"),
        ("[[fault]]\nat_s = 1\nkind = 'flap'", "kind must be one of "),
        ("[[fault]]\nat_s = 1\nkind = 'kill'\nrole = 'leeder'", "(did you mean 'leader'?)"),
        (KILL + "evidence = ['isrs']", "(did you mean 'isr'?)"),
        (KILL + "lasts_s = 1", "[[fault]] 1 (kill): lasts_s makes no sense here; how long a node is down is back_s"),
        (KILL + "duration_s = 1", "[[fault]] 1: unknown key 'duration_s'"),
        (KILL + "role = 'leader'", "[[fault]] 1 (kill): it names a node or a role, not both"),
        (KILL + "other = 2", "other is of faults between two nodes"),
        (KILL + "manner = 'hang'", "manner is of faults that cut both ways"),
        (KILL.replace("node = 1", ""), "it names the affected node: node, or role (active controller, leader"),
        (KILL.replace("node = 1", "node = 9"), "node is 9, and the cluster has 1, 2, 3, 101, 102, 103"),
        (KILL.replace("at_s = 1", "at_s = 20"), "at_s is 20, and the clients work for 20 s (duration_s)"),
        ("[[fault]]\nat_s = 1\nkind = 'pause'\nnode = 1", "[[fault]] 1 (pause): lasts_s is missing"),
        (
            "[[fault]]\nat_s = 1\nkind = 'pause'\nnode = 1\nlasts_s = 1\nback_s = 1",
            "back_s makes no sense here: no node goes down; lasts_s is how long",
        ),
        ("[[fault]]\nat_s = 1\nkind = 'cut'\nnode = 1\nlasts_s = 1", "names two nodes, node and other, and no role"),
        (CUT + "node = 1\nother = 1", "names two nodes, node and other, and no role"),
        (CUT + "role = 'leader'\nother = 1", "names two nodes, node and other, and no role"),
        (CUT + "node = 'clients'", "names two nodes, node and other, and no role"),
        (CUT + "node = 'clients'\nother = 'clients'", "names two nodes, node and other, and no role"),
        (CUT + "node = 'client'\nother = 1", "node must be a node's id, or 'clients', and is 'client'"),
        (CUT + "node = 0\nother = 1", "node must be a node's id, or 'clients', and is 0"),
        (CUT + "node = 'clients'\nother = 101", "clients have links to brokers only: 1, 2, 3"),
        (KILL.replace("node = 1", "node = 'clients'"), "clients are an end of faults between two ends: reset, cut,"),
        (CUT + "node = 1\nother = 2\ntoxicity_percent = 50", "toxicity_percent is of latency, slow link, byte limit"),
        (CUT + "node = 1\nother = 2\nstream = 'up'", "stream is of latency, slow link, byte limit, slicer"),
        (TIMEOUT + "stream = 'both'", "stream must be one of 'up', 'down', and is 'both'"),
        (TIMEOUT + "toxicity_percent = 101", "toxicity_percent must be a whole number from 1 to 100, and is 101"),
        (TIMEOUT + "toxicity_percent = 0", "toxicity_percent must be a whole number, 1 or more, and is 0"),
        (
            TIMEOUT + "stream = 'down'\nother = 1",
            "stream is 'down', and clients are the end that dials: what clients send",
        ),
        (TIMEOUT.replace("lasts_s = 1", ""), "[[fault]] 1 (timeout): lasts_s is missing"),
        (TIMEOUT + "delay_us = 1", "delay_us is of a fault of kind 'slicer'; this has timeout_ms"),
        (SLICER + "variation_bytes = 10", "variation_bytes must be less than average_bytes"),
        (KILL + "every_s = 2", "times and every_s go together"),
        (KILL + "times = 3\nevery_s = 10", "the last of 3 times begins at 21 s, and the clients work for 20 s"),
        (KILL + "times = 2\nevery_s = 2\nback_s = 2", "every_s is 2, and each time takes 2 s: it must be longer"),
        (
            KILL.replace("kill", "stumble") + "times = 2\nevery_s = 2",
            "every_s makes no sense here: times says how often the node is killed while it starts",
        ),
        (
            "[[fault]]\nat_s = 1\nkind = 'halves'\nnode = 1\nlasts_s = 1",
            "it is of the whole cluster and names neither node nor role",
        ),
        (
            "[cluster]\ncombined = 3\n[[fault]]\nat_s = 1\nkind = 'controllers cut off'\nlasts_s = 1",
            "this cluster cannot have it",
        ),
    ],
)
def test_errors_in_a_scenario_file_are_rejected_with_their_place(text: str, says: str) -> None:
    assert says in refusal(text)


def test_an_unknown_scenario_is_rejected_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="there is no scenario 'broker-crush': did you mean 'broker-crash'"):
        read_scenario("broker-crush")
    with pytest.raises(ScenarioError, match="scenarios are broker-crash, rolling-restart"):
        read_scenario("xyz")
    with pytest.raises(ScenarioError, match=r"gone\.toml cannot be read: No such file"):
        read_scenario(str(tmp_path / "gone.toml"))
    (tmp_path / "latin.toml").write_bytes(b'title = "\xe9"')
    with pytest.raises(ScenarioError, match=r"latin\.toml is not UTF-8 text"):
        read_scenario(str(tmp_path / "latin.toml"))


def test_a_users_scenario_file_is_read_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(KILL)
    scenario = read_scenario(str(tmp_path / "mine.toml"))
    assert (scenario.name, scenario.title, scenario.text) == ("mine", "mine", KILL)


# links


def fault_of(text: str) -> plan.Fault:
    (one,) = parse_scenario(text, "mine").faults
    return one.fault


def test_clients_may_be_an_end_of_a_link_in_a_scenario_file() -> None:
    lost = fault_of(CUT + 'node = "clients"\nother = 2')
    assert (lost.node, lost.other) == (plan.ALL_CLIENTS, 2)
    slow = fault_of(SLICER + 'other = "clients"')
    assert (slow.role, slow.node, slow.other) == ("leader", 0, plan.ALL_CLIENTS)
    every = fault_of(TIMEOUT)
    assert (every.node, every.other) == (plan.ALL_CLIENTS, 0)


def test_a_toxic_fault_is_read_with_its_stream_and_toxicity() -> None:
    given = fault_of(SLICER + 'variation_bytes = 9\ndelay_us = 0\ntoxicity_percent = 25\nstream = "up"')
    assert given == plan.Fault(
        at_ms=1_000,
        kind=plan.SLICER,
        role="leader",
        duration_ms=1_000,
        amount=10,
        variation_bytes=9,
        toxicity_percent=25,
        stream="up",
    )
    assert given.needs_toxics
    latency = '[[fault]]\nat_s = 1\nkind = "latency"\nnode = 1\nlatency_ms = 5\nlasts_s = 1\n'
    assert not fault_of(latency).needs_toxics
    assert fault_of(latency + "toxicity_percent = 50").needs_toxics
    assert fault_of(latency + 'stream = "down"').needs_toxics


# lanes


def lanes(text: str) -> list[int]:
    return [one.fault.lane for one in parse_scenario("duration_s = 60\n" + text, "mine").faults]


def kill(at_s: float, back_s: float, more: str = "") -> str:
    return f'[[fault]]\nat_s = {at_s}\nkind = "kill"\nnode = 1\nback_s = {back_s}\n{more}\n'


def test_faults_planned_to_overlap_get_separate_lanes() -> None:
    assert lanes(kill(1, 2) + kill(3, 2) + kill(5, 1)) == [0, 0, 0]
    assert lanes(kill(1, 3) + kill(3, 2) + kill(4, 2) + kill(4.5, 1)) == [0, 1, 0, 2]
    assert lanes(kill(5, 1) + kill(1, 10)) == [0, 1]


def test_a_fault_lane_given_in_a_scenario_is_kept_and_not_assigned_to_overlapping_faults() -> None:
    assert lanes(kill(1, 5, "lane = 3") + kill(2, 1)) == [3, 0]
    assert lanes(kill(1, 5, "lane = 0") + kill(2, 1) + kill(3, 1, "lane = 0")) == [0, 1, 0]


def test_faults_after_a_rolling_restart_get_other_lanes() -> None:
    assert lanes('[[fault]]\nat_s = 1\nkind = "rolling restart"\n' + kill(30, 1)) == [0, 1]


# durations


def times(scenario: Scenario) -> list[int]:
    return [one.fault.at_ms for one in scenario.faults]


def test_faults_of_a_scenario_repeat_in_a_run_longer_than_the_scenario() -> None:
    scenario = parse_scenario("duration_s = 20\n" + kill(2, 3) + kill(10, 2), "mine")
    assert times(with_duration(scenario, 20_000)) == [2_000, 10_000]
    longer = with_duration(scenario, 50_000)
    assert longer.duration_ms == 50_000
    assert times(longer) == [2_000, 10_000, 22_000, 30_000, 42_000]


def test_a_shorter_run_omits_faults_that_leave_no_time_to_work() -> None:
    scenario = parse_scenario("duration_s = 20\n" + kill(2, 3) + kill(10, 2), "mine")
    assert times(with_duration(scenario, 16_000)) == [2_000]
    with pytest.raises(ScenarioError, match="mine has no fault that fits into 9 s: it takes 10 s"):
        with_duration(scenario, 9_000)
    with pytest.raises(ScenarioError, match="more than 0 s, and not 0 s"):
        with_duration(scenario, 0)


def test_a_repeated_fault_repeats_in_every_period_of_a_longer_run() -> None:
    text = "duration_s = 20\n" + kill(2, 0.5, "times = 3\nevery_s = 1.5\nevidence = ['isr']") + kill(3, 1)
    scenario = parse_scenario(text, "mine")
    assert times(scenario) == [2_000, 3_000, 3_500, 5_000]
    assert [one.evidence for one in scenario.faults] == [("isr",), (), ("isr",), ("isr",)]
    assert [one.fault.lane for one in scenario.faults] == [0, 0, 1, 0]
    assert times(with_duration(scenario, 9_000)) == [2_000, 3_000, 3_500]
    assert times(with_duration(scenario, 30_000)) == [2_000, 3_000, 3_500, 5_000, 22_000, 23_000, 23_500]


# random faults


def test_randomly_drawn_faults_can_lose_no_records_and_end_before_the_run() -> None:
    scenario = parse_scenario("duration_s = 30\nrandom_faults = true\n" + kill(2, 3), "mine")
    with SimulatedCluster(seed=1) as cluster:
        drawn = [faults_of_run(scenario, cluster, seed) for seed in range(1, 30)]
        assert faults_of_run(scenario, cluster, 5) == drawn[4]
    assert len({tuple(one.fault.at_ms for one in faults) for faults in drawn}) == len(drawn)
    for faults in drawn:
        assert faults[0] == scenario.faults[0]
        assert len(faults) > 1
        assert all(one.fault.lane != 0 for one in faults[1:])
        assert not {one.fault.kind for one in faults} & {plan.POWER_LOSS, *MAY_LOSE_RECORDS}
        assert all(planned_end_ms(one.fault) <= 25_000 for one in faults)
