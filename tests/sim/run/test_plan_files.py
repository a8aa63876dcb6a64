"""Tests of plan files: reading returns what was written, and invalid plans are rejected with a reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.sim.nemesis.drawn_clients import RARE_CLIENTS
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import (
    CLIENTS,
    DIRECTORY_MOVER,
    FAULT_KINDS,
    MOVER,
    PLAN_MS_MAX,
    REGISTRARS,
    REREADER,
    ROLES,
    TRIMMER,
    VOTER_CHANGER,
    Fault,
    Plan,
)
from kraft.sim.nemesis.swarm import draw_plan
from kraft.sim.run.plan_file import PlanFileError, RecordedPlan, parse, read_plan, render
from kraft.sim.run.run import Signature

SETTINGS = FaultSettings(duration_ms=5_000)


@given(st.integers(min_value=0, max_value=1 << 40))
def test_a_plan_written_to_a_file_is_read_back_unchanged(seed: int) -> None:
    plan = draw_plan(seed, SETTINGS)
    recorded = RecordedPlan(plan, "abc", Signature("D4", "something"), "D4 at event 3: something", "1.2.3")
    assert parse(render(recorded)) == recorded


def test_a_seed_always_draws_the_same_plan() -> None:
    assert draw_plan(7, SETTINGS) == draw_plan(7, SETTINGS) != draw_plan(8, SETTINGS)


def test_a_seed_draws_at_least_six_faults_of_three_kinds_and_every_tenth_seed_draws_none() -> None:
    for seed in range(1, 60):
        kinds = Counter(fault.kind for fault in draw_plan(seed, FaultSettings()).faults)
        if seed % 10:
            assert kinds.total() >= 6, seed
            assert len(kinds) >= 3, seed
        else:
            assert not kinds, seed


def test_plans_of_many_seeds_have_every_kind_of_fault_and_all_clients() -> None:
    plans = [draw_plan(seed, FaultSettings()) for seed in range(1, 80)]
    names = {fault.kind for plan in plans for fault in plan.faults}
    assert names == set(FAULT_KINDS)
    assert {fault.role for plan in plans for fault in plan.faults} == {"", *ROLES}
    some = {MOVER, DIRECTORY_MOVER, VOTER_CHANGER, TRIMMER, REREADER, *REGISTRARS, *RARE_CLIENTS}
    assert {client for plan in plans for client in plan.work} == set(CLIENTS)
    assert some in [set(CLIENTS) - set(plan.work) for plan in plans]
    assert all(set(CLIENTS) - set(plan.work) <= some for plan in plans)
    for plan in plans:
        assert list(plan.faults) == sorted(plan.faults, key=lambda fault: fault.at_ms)


def spoil(change: Callable[[dict[str, Any]], object]) -> str:
    """Apply this change to a good plan file, and return the error when it is read."""
    data = json.loads(render(RecordedPlan(draw_plan(1, SETTINGS), "abc")))
    change(data)
    with pytest.raises(PlanFileError) as refused:
        parse(json.dumps(data))
    return str(refused.value)


def test_an_invalid_plan_is_rejected_with_a_reason() -> None:
    assert "format is 9" in spoil(lambda data: data.update(format=9))
    assert "format is '1', and this version reads 1" in spoil(lambda data: data.update(format="1"))
    assert "format is 0" in spoil(lambda data: (data.update(format=0), data.pop("faults")))
    assert "the file has falts" in spoil(lambda data: data.update(falts=[]))
    assert "faults must be a list" in spoil(lambda data: data.update(faults={"at_ms": 1}))
    assert "fault 1 must be an object" in spoil(lambda data: data.update(faults=[5]))
    assert "fault 1 needs an at_ms, a number" in spoil(lambda data: data["faults"][0].update(at_ms="soon"))
    assert "fault 1 needs an at_ms, a number" in spoil(lambda data: data["faults"][0].update(at_ms=True))
    assert "fault 1 needs a kind, one of kill, " in spoil(lambda data: data["faults"][0].update(kind=["kill"]))
    assert spoil(lambda data: data.pop("faults")).endswith("it has no faults")
    assert spoil(lambda data: data.pop("format")).endswith("it has no format")
    assert spoil(dict.clear).endswith("it has no format and no faults")
    assert "fault 1 needs a kind, one of kill, " in spoil(lambda data: data["faults"][0].update(kind="earthquake"))
    assert "fault 1 names [77], and the cluster has 101, " in spoil(lambda data: data["faults"][0].update(node=77))
    assert "fault 1 names the role 'boss', and there are " in spoil(lambda data: data["faults"][0].update(role="boss"))
    assert "fault 1: back_ms must be a number" in spoil(lambda data: data["faults"][0].update(back_ms="soon"))
    assert "must name the nodes" in spoil(lambda data: data["faults"][0].update(kind="cut", node=1, other=0))
    assert "must name the nodes" in spoil(lambda data: data["faults"][0].update(kind="pause", node=0))
    assert "fault 1 has colour" in spoil(lambda data: data["faults"][0].update(colour="red"))
    assert "duration_ms must be a number" in spoil(lambda data: data.update(duration_ms=True))
    assert "shape: brokers must be a number" in spoil(lambda data: data["shape"].update(brokers="many"))
    assert "options must be an object" in spoil(lambda data: data.update(options=[1]))
    assert "work must be an object of these clients" in spoil(lambda data: data["work"].update(stranger=[]))
    assert "consumer: an operation is" in spoil(lambda data: data["work"].update(consumer=[[1, "dance", 0]]))
    assert "admin: its work must be a list" in spoil(lambda data: data["work"].update(admin=5))
    assert "check must be a text" in spoil(lambda data: data.update(check=["x"]))
    assert "topic_configs must hold texts" in spoil(lambda data: data.update(topic_configs={"retention.ms": 1}))


def test_an_impossible_plan_is_rejected_with_a_reason() -> None:
    def of_shape(**change: Any) -> str:
        return spoil(lambda data: data["shape"].update(change))

    def of_work(client: str, *row: Any) -> str:
        return spoil(lambda data: data["work"].update({client: [row]}))

    def of_fault(**change: Any) -> str:
        return spoil(lambda data: data["faults"][0].update(change))

    assert "this has 0 and" in of_shape(controllers=0)
    assert "this has 3 and 0" in of_shape(controllers=3, brokers=0)
    assert "log_dirs must be 1 to 6, and is 9" in of_shape(log_dirs=9)
    assert "overrides: a: there is no such broker key" in of_shape(overrides={"a": "1"})
    assert "overrides must hold texts" in of_shape(overrides={"num.io.threads": 1})
    assert "compression must be one of none, gzip" in spoil(lambda data: data.update(compression="foo"))
    assert "topic_configs: a: there is no such topic key" in spoil(lambda data: data.update(topic_configs={"a": "1"}))
    assert "batch_bytes are 1, 5000 and 0: too small" in spoil(lambda data: data.update(batch_bytes=0))
    assert "tiny_read_one_in must not be below 0" in spoil(lambda data: data["options"].update(tiny_read_one_in=-1))
    assert "voter-changer: needs dynamic_voters in the shape" in of_work("voter-changer", 0, "add voter", 0, 0)
    assert "is for partition 7, and the topic has 3" in of_work("producer-exact", 0, "send", 7, 0)
    assert "is for partition 3, and the topic has 3" in of_work("producer-closed-loop", 0, "send", 3, 0)
    assert "is 'send too', and this client knows send" in of_work("producer-closed-loop", 0, "send too", 0, 0)
    assert "is 'send', and this client knows set broker config" in of_work("configurer", 0, "send", 0, 0)
    assert "is 'elect leaders', and this client knows elect" in of_work("elector", 0, "elect leaders", 0, 0)
    assert "operation 1 is 'move', and this client knows send" in of_work("producer-exact", 0, "move", 0, 0)
    assert "operation 1 is 'send', and this client knows delete" in of_work("admin", 0, "send", 0, 0)
    assert "operation 1 is 'send', and this client knows nothing" in of_work("consumer", 0, "send", 0, 0)
    assert "operation 1 is 'send', and this client knows create, validate" in of_work("registrar-0", 0, "send", 0, 0)
    assert "operation 1 (send) has a number below 0" in of_work("extra", 0, "send", 0, -1)
    assert "fault 1 (failing directory) is not for this cluster" in of_fault(kind="failing directory", node=1)
    assert "fault 1 (blackout) is not for this cluster" in of_fault(kind="blackout", node=0)
    assert "fault 1 (cut) needs two nodes" in of_fault(kind="cut", node=1, other=1)
    assert "fault 1 (pause) has a time or a pick below 0" in of_fault(kind="pause", node=1, duration_ms=-1)
    assert "fault 1 needs a kind, one of kill, " in of_fault(kind="slicer", node=1)
    assert "fault 1 (latency) has a toxicity_percent or a stream: only clusters behind toxiproxy" in of_fault(
        kind="latency", node=1, other=2, amount=5, toxicity_percent=50
    )
    assert "fault 1 names [-1], and the cluster has" in of_fault(kind="cut", node=-1, other=1)
    assert "(bit rot) is of a broker's logs, and 101 is none" in of_fault(kind="bit rot", node=101)
    assert "operation 1 is for partition 3" in of_work("rereader", 0, "read again", 3, 0)
    assert "(pause) cannot wait for the shrunk leader: only kill, power loss" in of_fault(
        kind="pause", node=1, role="shrunk leader"
    )
    for kind in ("pause", "cut", "isolate", "stumble", "slow disk"):
        said = of_fault(kind=kind, node=3, other=2, role="active controller")
        assert f"fault 1 ({kind}) hits the node that it names, and not the active controller: only kill" in said


def test_a_time_in_a_plan_above_the_limit_is_rejected_with_an_error_that_names_the_limit() -> None:
    long = PLAN_MS_MAX + 1
    told = (
        spoil(lambda data: data["faults"][0].update(at_ms=99_999_999_999)),
        spoil(lambda data: data["faults"][0].update(duration_ms=long)),
        spoil(lambda data: data["faults"][0].update(back_ms=long)),
        spoil(lambda data: data["faults"][0].update(jitter_ms=long)),
        spoil(lambda data: data["work"].update(extra=[[long, "send", 0, 0]])),
        spoil(lambda data: data.update(duration_ms=long)),
    )
    for said in told:
        assert said.endswith("it must not be beyond PLAN_MS_MAX, 86,400,000 ms (a day)")
    assert " has a time of 99999999999 ms" in told[0]
    kept = Plan(duration_ms=PLAN_MS_MAX, faults=(Fault(at_ms=PLAN_MS_MAX, kind="kill", node=1),))
    assert parse(render(RecordedPlan(kept, ""))).plan == kept


def test_an_error_names_a_plan_file_that_is_not_json(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text("{")
    with pytest.raises(PlanFileError, match=r"broken\.json: this is no JSON"):
        read_plan(path)


def test_an_error_names_a_plan_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(b"\x93\xff")
    with pytest.raises(PlanFileError, match=r"broken\.json: this is no text"):
        read_plan(path)


def test_a_plan_file_omits_defaults() -> None:
    text = render(RecordedPlan(draw_plan(4, SETTINGS), "abc"))
    assert "pass_delay_ns" not in text
    assert all("amount" not in line for line in text.splitlines() if '"kind": "kill"' in line)
    assert Fault(at_ms=1, kind="kill").amount == 0
