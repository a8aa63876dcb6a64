"""The observer's samples as time spans: how long each state lasted. Where no state was observed, there is a gap."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kraft.sim.chaos.run.run_folder import ClusterSample, PartitionSample

State = TypeVar("State", bound=Hashable)
HELD_MS_MAX = 1_000.0
"""Maximum time in ms after its sample for which the last state is drawn."""
STEPS_MAX = 300
"""Maximum number of spans in a row of the picture. If there are more, those too thin to be seen are merged into their
predecessor."""
THIN_SHARE = 1 / 600
LANES_MAX = 16


@dataclass(frozen=True, slots=True)
class StateSpan(Generic[State]):
    begin_ms: float
    end_ms: float
    state: State


@dataclass(frozen=True, slots=True)
class LeaderState:
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class InSyncState:
    isr: tuple[int, ...]
    replicas: int


@dataclass(frozen=True, slots=True)
class ActiveController:
    node: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ClusterSpans:
    """Spans of leaders, ISRs and the active controller. `leaders` and `isrs`: TOPIC-PARTITION → its spans. `left_out`:
    number of omitted partitions, those with the fewest changes."""

    leaders: dict[str, list[StateSpan[LeaderState]]]
    isrs: dict[str, list[StateSpan[InSyncState]]]
    controller: list[StateSpan[ActiveController]]
    left_out: int

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes that led, were in sync, or were the active controller, ascending."""
        led = {step.state.leader for steps in self.leaders.values() for step in steps}
        synced = {node for steps in self.isrs.values() for step in steps for node in step.state.isr}
        controllers = {step.state.node for step in self.controller}
        return tuple(sorted((led | synced | controllers) - {-1}))


def cluster_spans(samples: Sequence[ClusterSample], end_ms: float) -> ClusterSpans:
    """Return the spans of at most LANES_MAX partitions: those with the most changes."""
    times = [sample.time_ms for sample in samples]
    by_place = [{(each.topic, each.partition): each for each in sample.partitions} for sample in samples]
    places = sorted({place for partitions in by_place for place in partitions})
    leaders, isrs = {}, {}
    for place in places:
        seen = [partitions.get(place) for partitions in by_place]
        leaders[place] = spans_of(zip(times, map(_leadership, seen), strict=True), end_ms)
        isrs[place] = spans_of(zip(times, map(_in_sync, seen), strict=True), end_ms)
    changes = {place: len(leaders[place]) + len(isrs[place]) for place in places}
    shown = sorted(sorted(places, key=lambda place: (-changes[place], place))[:LANES_MAX])
    controllers = [
        ActiveController(sample.controller, sample.controller_epoch)
        if sample.controller >= 0 or sample.controller_epoch >= 0
        else None
        for sample in samples
    ]
    return ClusterSpans(
        {f"{topic}-{partition}": leaders[topic, partition] for topic, partition in shown},
        {f"{topic}-{partition}": isrs[topic, partition] for topic, partition in shown},
        spans_of(zip(times, controllers, strict=True), end_ms),
        len(places) - len(shown),
    )


def _leadership(seen: PartitionSample | None) -> LeaderState | None:
    return None if seen is None else LeaderState(seen.leader, seen.leader_epoch)


def _in_sync(seen: PartitionSample | None) -> InSyncState | None:
    return None if seen is None else InSyncState(tuple(sorted(seen.isr)), len(seen.replicas))


def spans_of(seen: Iterable[tuple[float, State | None]], end_ms: float) -> list[StateSpan[State]]:
    """Convert states of successive samples to spans: one span for each run of equal states; no span for None. A state
    lasts until the next sample."""
    samples = list(seen)
    if not samples:
        return []
    last_ms = samples[-1][0]
    found: list[StateSpan[State]] = []
    state, begin_ms = None, 0.0
    for time_ms, next_state in [*samples, (max(last_ms, min(end_ms, last_ms + HELD_MS_MAX)), None)]:
        if next_state == state:
            continue
        if state is not None:
            found.append(StateSpan(begin_ms, time_ms, state))
        state, begin_ms = next_state, time_ms
    return _without_thin(found)


def _without_thin(steps: list[StateSpan[State]]) -> list[StateSpan[State]]:
    if len(steps) <= STEPS_MAX:
        return steps
    thin_ms = (steps[-1].end_ms - steps[0].begin_ms) * THIN_SHARE
    joined: list[StateSpan[State]] = []
    for step in steps:
        if joined and step.end_ms - step.begin_ms < thin_ms:
            joined[-1] = StateSpan(joined[-1].begin_ms, step.end_ms, joined[-1].state)
        else:
            joined.append(step)
    return joined
