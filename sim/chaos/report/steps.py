"""What the observer saw, as steps: how long each state lasted. A state that was not seen leaves a hole."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kraft.sim.chaos.run.run_folder import PartitionSample, Sample

State = TypeVar("State", bound=Hashable)
HELD_MS_MAX = 1_000.0
"""The last state is drawn for so long after its sample, unless the run ends before."""
STEPS_MAX = 300
"""Of a lane with more, those too thin to be seen are joined with what came before."""
THIN_SHARE = 1 / 600
LANES_MAX = 16


@dataclass(frozen=True, slots=True)
class Step(Generic[State]):
    begin_ms: float
    end_ms: float
    state: State


@dataclass(frozen=True, slots=True)
class Leadership:
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class InSync:
    isr: tuple[int, ...]
    replicas: int


@dataclass(frozen=True, slots=True)
class ActiveController:
    node: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ClusterSteps:
    """`leaders` and `isrs` by TOPIC-PARTITION. `left_out`: so many partitions, those that changed least."""

    leaders: dict[str, list[Step[Leadership]]]
    isrs: dict[str, list[Step[InSync]]]
    controller: list[Step[ActiveController]]
    left_out: int

    @property
    def nodes(self) -> tuple[int, ...]:
        """Those that led, were in sync, or were the active controller, ascending."""
        led = {step.state.leader for steps in self.leaders.values() for step in steps}
        synced = {node for steps in self.isrs.values() for step in steps for node in step.state.isr}
        controllers = {step.state.node for step in self.controller}
        return tuple(sorted((led | synced | controllers) - {-1}))


def cluster_steps(samples: Sequence[Sample], end_ms: float) -> ClusterSteps:
    """At most LANES_MAX partitions: those that changed most."""
    times = [sample.time_ms for sample in samples]
    by_place = [{(each.topic, each.partition): each for each in sample.partitions} for sample in samples]
    places = sorted({place for partitions in by_place for place in partitions})
    leaders, isrs = {}, {}
    for place in places:
        seen = [partitions.get(place) for partitions in by_place]
        leaders[place] = steps_of(zip(times, map(_leadership, seen), strict=True), end_ms)
        isrs[place] = steps_of(zip(times, map(_in_sync, seen), strict=True), end_ms)
    changes = {place: len(leaders[place]) + len(isrs[place]) for place in places}
    shown = sorted(sorted(places, key=lambda place: (-changes[place], place))[:LANES_MAX])
    controllers = [
        ActiveController(sample.controller, sample.controller_epoch)
        if sample.controller >= 0 or sample.controller_epoch >= 0
        else None
        for sample in samples
    ]
    return ClusterSteps(
        {f"{topic}-{partition}": leaders[topic, partition] for topic, partition in shown},
        {f"{topic}-{partition}": isrs[topic, partition] for topic, partition in shown},
        steps_of(zip(times, controllers, strict=True), end_ms),
        len(places) - len(shown),
    )


def _leadership(seen: PartitionSample | None) -> Leadership | None:
    return None if seen is None else Leadership(seen.leader, seen.leader_epoch)


def _in_sync(seen: PartitionSample | None) -> InSync | None:
    return None if seen is None else InSync(tuple(sorted(seen.isr)), len(seen.replicas))


def steps_of(seen: Iterable[tuple[float, State | None]], end_ms: float) -> list[Step[State]]:
    """One step for each run of equal states; None is a hole. A state holds until the next sample."""
    samples = list(seen)
    if not samples:
        return []
    last_ms = samples[-1][0]
    found: list[Step[State]] = []
    state, begin_ms = None, 0.0
    for time_ms, next_state in [*samples, (max(last_ms, min(end_ms, last_ms + HELD_MS_MAX)), None)]:
        if next_state == state:
            continue
        if state is not None:
            found.append(Step(begin_ms, time_ms, state))
        state, begin_ms = next_state, time_ms
    return _without_thin(found)


def _without_thin(steps: list[Step[State]]) -> list[Step[State]]:
    if len(steps) <= STEPS_MAX:
        return steps
    thin_ms = (steps[-1].end_ms - steps[0].begin_ms) * THIN_SHARE
    joined: list[Step[State]] = []
    for step in steps:
        if joined and step.end_ms - step.begin_ms < thin_ms:
            joined[-1] = Step(joined[-1].begin_ms, step.end_ms, joined[-1].state)
        else:
            joined.append(step)
    return joined
