"""Made-up runs that resemble real ones: producers, a reader, a killed leader, and the judge's verdict on the run."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kraft.sim.chaos.history import Function, HistoryEvent, HistoryEventType, line_of
from kraft.sim.chaos.judge import INVALID, UNKNOWN, FaultEffect, FoundAnomaly, Gap, PhaseStatistics, RunVerdict
from kraft.sim.chaos.run.run_folder import (
    ClusterSample,
    FaultRecord,
    OutputLine,
    PartitionSample,
    RunFolder,
    RunInfo,
)

DURATION_MS, HEALED_MS, END_MS = 20_000.0, 15_500.0, 23_000.0
KILL_MS, KILL_END_MS, GAP_MS = 4_000.0, 9_000.0, 640.0
CUT_MS, CUT_END_MS = 11_000.0, 15_000.0
SCRIPT = "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>"
SCENARIO_TEXT = """title = "Broker crash"
about = "The leader of a partition is killed with kill -9 and comes back."
duration_s = 20

[[fault]]
at_s = 4
kind = "kill"
role = "leader"
back_s = 5
"""


@dataclass(frozen=True)
class MadeRun:
    """The values of a run folder, and the verdict of the run."""

    info: RunInfo
    verdict: RunVerdict
    history: list[HistoryEvent] = field(default_factory=list)
    faults: list[FaultRecord] = field(default_factory=list)
    samples: list[ClusterSample] = field(default_factory=list)
    output: list[OutputLine] = field(default_factory=list)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The arguments of render_run."""
        return self.info, self.verdict, self.history, self.faults, self.samples, self.output

    def written_to(self, path: Path) -> RunFolder:
        """Write the folder of the run, except the report. Return the folder."""
        path.mkdir(parents=True, exist_ok=True)
        folder = RunFolder(path)
        folder.write_info(self.info)
        folder.history.write_text("".join(map(line_of, self.history)), encoding="utf-8")
        for name, rows in (("faults", self.faults), ("samples", self.samples), ("output", self.output)):
            if rows:
                folder.write_rows(name, rows)
        return folder


def valid_run(*, rate: float = 50.0, seed: int = 7) -> MadeRun:
    """Return a valid run: a leader is killed, then a broker is cut off from the others, and there is evidence for both
    faults."""
    history = _history(rate, random.Random(seed))
    return MadeRun(_info(seed), _verdict(history), history, _faults(), list(_samples()))


def invalid_run() -> MadeRun:
    """Return an invalid run: two lost records, one duplicate, and an anomaly that the scenario permits."""
    run = valid_run()
    sends = [event for event in run.history if event.f is Function.SEND and event.type is HistoryEventType.OK]
    anomalies = (
        _anomaly("lost write", "an acknowledged record was never read, though one behind it was", sends[100:101]),
        _anomaly("lost write", "an acknowledged record was never read, though one behind it was", sends[260:262]),
        _anomaly("duplicate", "a record of an idempotent producer is doubled", sends[400:401]),
        replace(_anomaly("poll skip", "a reader was not given the next record", sends[500:501]), is_allowed=True),
    )
    counts = {"lost write": 41, "duplicate": 1, "poll skip": 1}
    verdict = replace(run.verdict, verdict=INVALID, anomalies=anomalies, anomaly_counts=counts)
    return replace(run, verdict=verdict, info=replace(run.info, allowed=("poll skip",)))


def unknown_run() -> MadeRun:
    """Return a run with an unknown verdict, because the second fault did not take effect."""
    run = valid_run()
    missed = replace(run.faults[1], missed="no broker led a partition")
    effects = (run.verdict.effects[0], FaultEffect(fault=1, is_seen=False, evidence="no ISR without broker 3 was seen"))
    reasons = (
        "fault 2 (isolate) did not take effect: no ISR without broker 3 was seen",
        "one producer was not started",
    )
    verdict = replace(run.verdict, verdict=UNKNOWN, reasons=reasons, effects=effects)
    return replace(run, verdict=verdict, faults=[run.faults[0], missed])


def empty_run() -> MadeRun:
    """Return a run whose cluster did not start. It has no data except the reason."""
    info = replace(_info(1), trouble=("broker 2 did not start",), healed_ms=0.0, duration_ms=0.0, end_ms=0.0, text="")
    return MadeRun(info, RunVerdict(verdict=UNKNOWN, reasons=("broker 2 did not start",)))


def application_run() -> MadeRun:
    """Return a run whose workload is the user's program. The program prints text that must not become markup of the
    page."""
    run = valid_run()
    words = ("consumed 100 records", f"odd value {SCRIPT}", "WARN connection to node 2 lost", "$x$ and \u4e2d\u6587")
    output = [
        OutputLine(time_ms=150.0 * number, stream="stderr" if number % 4 == 2 else "stdout", text=words[number % 4])
        for number in range(120)
    ]
    info = replace(run.info, application=("python", "app.py", "--topic", "orders"), application_exit=0)
    return replace(run, info=info, output=output)


def hostile_run() -> MadeRun:
    """Return a run in which every text field contains a script."""
    run = invalid_run()
    history = [replace(event, process=SCRIPT, error=SCRIPT and event.error and SCRIPT) for event in run.history[:400]]
    history = [
        replace(event, values={**event.values, "value": SCRIPT, "place": [SCRIPT, 0], SCRIPT: SCRIPT})
        for event in history
    ]
    anomaly = FoundAnomaly(name=SCRIPT, text=SCRIPT, place=SCRIPT, evidence={SCRIPT: SCRIPT}, operations=(3,))
    info = replace(
        run.info, scenario=SCRIPT, title=SCRIPT, about=SCRIPT, text=SCRIPT, cluster=SCRIPT, client=SCRIPT,
        command=SCRIPT, versions={SCRIPT: SCRIPT}, notes=(SCRIPT,), trouble=(SCRIPT,), application=(SCRIPT,),
        started_at=SCRIPT, allowed=(SCRIPT,),
    )  # fmt: skip
    verdict = replace(
        run.verdict, reasons=(SCRIPT,), anomalies=(anomaly,), anomaly_counts={SCRIPT: 9}, errors={SCRIPT: 1},
        effects=(FaultEffect(fault=0, is_seen=True, evidence=SCRIPT),), checked={SCRIPT: 1},
        gaps=(Gap(fault=0, f=SCRIPT, gap_ms=300, first_success_ms=500, places=(SCRIPT,)),), counts={SCRIPT: {"ok": 1}},
        phases=(replace(run.verdict.phases[0], phase=SCRIPT, f=SCRIPT),),
    )  # fmt: skip
    faults = [replace(run.faults[0], kind=SCRIPT, text=SCRIPT, role=SCRIPT), replace(run.faults[1], missed=SCRIPT)]
    samples = [
        replace(sample, partitions=tuple(replace(each, topic=SCRIPT) for each in sample.partitions))
        for sample in run.samples
    ]
    output = [OutputLine(time_ms=5, stream=SCRIPT, text=SCRIPT)]
    return MadeRun(info, verdict, history, faults, samples, output)


def _info(seed: int) -> RunInfo:
    return RunInfo(
        scenario="broker-crash", title="Broker crash", text=SCENARIO_TEXT, cluster="pykraft", client="kraft", seed=seed,
        about="The leader of a partition is killed with kill -9 and comes back. Then a broker is cut off.",
        started_at="2026-03-01T12:00:00Z", duration_ms=DURATION_MS, healed_ms=HEALED_MS, end_ms=END_MS, partitions=3,
        replicas=3, command=f"kraft chaos run broker-crash --seed {seed} --client kraft --duration 20",
        versions={"pykraft": "0.1.0", "toxiproxy": "2.12.0", "Python": "3.11.2", "system": "Linux 6.1"},
        gap_ms_max=1_000, notes=("the clock of this machine is not synchronized",),
    )  # fmt: skip


def _faults() -> list[FaultRecord]:
    return [
        FaultRecord(
            kind="kill", text="kill -9 of broker 2, which leads chaos-0; it starts again after 5 s", nodes=(2,),
            role="leader", begin_ms=KILL_MS, end_ms=KILL_END_MS, evidence=("isr", "process"),
        ),
        FaultRecord(
            kind="isolate", text="nothing passes between broker 3 and any other node", nodes=(3,),
            begin_ms=CUT_MS, end_ms=CUT_END_MS, evidence=("isr",),
        ),
    ]  # fmt: skip


def _history(rate: float, draw: random.Random) -> list[HistoryEvent]:
    """Return the history of three producers of one partition each, a reader, an administrator, and the final reader."""
    lines: list[tuple[float, str, HistoryEventType, Function, str, dict[str, Any]]] = []
    for producer in range(3):
        lines += _sends(producer, rate, draw)
    for number in range(int(DURATION_MS / 250)):
        at = number * 250.0
        records = [["chaos", 0, [[number * 2 + each, f"producer-0/{number * 2 + each}"] for each in range(2)]]]
        lines.append((at, "reader-0", HistoryEventType.INVOKE, Function.POLL, "", {}))
        lines.append(
            (at + draw.uniform(2, 200), "reader-0", HistoryEventType.OK, Function.POLL, "", {"records": records})
        )
    for number in range(10):
        values = {"topic": f"extra-{number}", "partitions": 1}
        lines.append((number * 1_900.0, "admin-0", HistoryEventType.INVOKE, Function.CREATE_TOPIC, "", values))
        taken = 900.0 if number == 2 else draw.uniform(8, 30)
        kind, error = (HistoryEventType.FAIL, "TOPIC_ALREADY_EXISTS") if number == 5 else (HistoryEventType.OK, "")
        lines.append((number * 1_900.0 + taken, "admin-0", kind, Function.CREATE_TOPIC, error, values))
    lines.append((21_000.0, "final-reader", HistoryEventType.INVOKE, Function.POLL, "", {}))
    lines.append((21_400.0, "final-reader", HistoryEventType.OK, Function.POLL, "", {"records": []}))
    return _numbered(lines)


def _sends(producer: int, rate: float, draw: random.Random) -> Iterable[Any]:
    at, offset, life = producer * 3.0, 0, 0
    for number in range(int(DURATION_MS * rate / 1000)):
        at = max(at + draw.uniform(0, 0.5), number * 1000 / rate + producer)
        if at > DURATION_MS:
            return
        process = f"producer-{producer}" + (f"-{life}" if life else "")
        values: dict[str, Any] = {"place": ["chaos", producer], "value": f"producer-{producer}/{number}"}
        yield at, process, HistoryEventType.INVOKE, Function.SEND, "", values
        is_hit = producer == 0 and KILL_MS - 5 < at < KILL_MS + GAP_MS
        taken = draw.lognormvariate(1.3, 0.45) * min(1.0, 100 / rate) * (6 if CUT_MS < at < CUT_MS + 700 else 1)
        if is_hit and KILL_MS + GAP_MS - at > 500:
            yield at + 500, process, HistoryEventType.INFO, Function.SEND, "REQUEST_TIMED_OUT", values
            at, life = at + 500, life + 1
        elif draw.random() < 0.002:
            yield at + taken, process, HistoryEventType.FAIL, Function.SEND, "NOT_ENOUGH_REPLICAS", values
            at += taken
        else:
            taken = KILL_MS + GAP_MS - at if is_hit else taken
            yield at + taken, process, HistoryEventType.OK, Function.SEND, "", {**values, "offset": offset}
            at, offset = at + taken, offset + 1


def _numbered(lines: list[Any]) -> list[HistoryEvent]:
    ordered = sorted(lines, key=lambda line: line[0])
    return [
        HistoryEvent(index, int(at * 1e6), process, kind, f, error, values)
        for index, (at, process, kind, f, error, values) in enumerate(ordered)
    ]


def _samples() -> Iterable[ClusterSample]:
    for number in range(int(END_MS / 100)):
        at = number * 100.0
        is_killed, is_cut = KILL_MS + 300 < at < KILL_END_MS + 800, CUT_MS + 400 < at < CUT_END_MS + 600
        in_sync = tuple(node for node in (1, 2, 3) if not (node == 2 and is_killed) and not (node == 3 and is_cut))
        yield ClusterSample(
            time_ms=at,
            partitions=tuple(_partition(each, at, in_sync) for each in range(3)),
            controller=-1 if KILL_MS < at < KILL_MS + 300 else 101 if at < KILL_MS else 102,
            controller_epoch=3 if at < KILL_MS else 4,
            brokers=in_sync,
        )


def _partition(number: int, at: float, in_sync: tuple[int, ...]) -> PartitionSample:
    leader, epoch = (2, 1, 3)[number], 4
    if number == 0 and at > KILL_MS + 200:
        leader, epoch = (-1, 5) if at < KILL_MS + 500 else (3, 6)
    if leader == 3 and at > CUT_MS + 500:
        leader, epoch = 1, epoch + 1
    return PartitionSample(
        topic="chaos", partition=number, leader=leader, leader_epoch=epoch, isr=in_sync, replicas=(1, 2, 3)
    )


def _anomaly(name: str, text: str, events: list[HistoryEvent]) -> FoundAnomaly:
    values = events[0].values
    return FoundAnomaly(
        name=name, text=text, place="chaos-{}".format(values["place"][1]),
        operations=tuple(each.index for each in events),
        evidence={"value": values["value"], "offset": values["offset"], "found": None},
    )  # fmt: skip


def _verdict(history: list[HistoryEvent]) -> RunVerdict:
    counts: dict[str, dict[str, int]] = {}
    errors: dict[str, int] = {}
    for event in history:
        if event.type is not HistoryEventType.INVOKE:
            of = counts.setdefault(event.f.value, {"ok": 0, "fail": 0, "info": 0})
            of[event.type.value] += 1
            if event.error:
                errors[event.error] = errors.get(event.error, 0) + 1
    acked = [event.time_ms for event in history if event.f is Function.SEND and event.type is HistoryEventType.OK]
    throughput = [(at * 1000.0, float(sum(at * 1000 <= each < at * 1000 + 1000 for each in acked))) for at in range(20)]
    return RunVerdict(
        verdict="valid", counts=counts, errors=errors, throughput=throughput, phases=tuple(_phases()),
        effects=(
            FaultEffect(fault=0, is_seen=True, evidence="ISR of chaos-0 went from 1,2,3 to 1,3 after 0.31 s"),
            FaultEffect(fault=1, is_seen=True, evidence="ISR of chaos-1 went from 1,2,3 to 1,2 after 0.42 s"),
        ),
        gaps=(
            Gap(fault=0, f="send", gap_ms=GAP_MS, first_success_ms=GAP_MS, places=("chaos-0",)),
            Gap(fault=0, f="create topic", gap_ms=880, first_success_ms=900),
            Gap(fault=1, f="send", gap_ms=48, first_success_ms=60, places=("chaos-2",)),
        ),
        checked={"D10": 2_950, "L10": 2_940, "C1": 2_940, "C2": 160},
    )  # fmt: skip


def _phases() -> Iterable[PhaseStatistics]:
    ends = [
        ("before faults", 0.0, KILL_MS), ("fault 1", KILL_MS, KILL_END_MS), ("between faults", KILL_END_MS, CUT_MS),
        ("fault 2", CUT_MS, CUT_END_MS), ("after heal", HEALED_MS, DURATION_MS),
    ]  # fmt: skip
    for number, (phase, begin_ms, end_ms) in enumerate(ends):
        slow = 80.0 if phase.startswith("fault") else 1.0
        yield PhaseStatistics(
            phase=phase, begin_ms=begin_ms, end_ms=end_ms, f="send", ok=600 + number, fail=number % 2, info=0,
            p50_ms=3.6, p95_ms=7.4 + slow, p99_ms=9.2 + 6 * slow, max_ms=14 + 7 * slow,
        )  # fmt: skip
