"""A planted bug for each clause of the failure detector, and the test that notices it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraft.control import FenceTarget
from kraft.control.brokers.probing import (
    BrokerKnown,
    ConnectionEnded,
    HeartbeatHeard,
    ProbeOutcome,
    Probing,
)
from tests.control import test_probing as probing
from tests.control import test_probing_by_standbys as standbys
from tests.control.detector import CLOSED, OTHER, REFUSED, SILENT


def judge_at_once(self: Probing, watch: Any, outcome: ProbeOutcome, now_ms: int) -> None:
    """Bug: one bad result is proof enough."""
    watch.proven_ms = now_ms if outcome in (OTHER, REFUSED, CLOSED) and watch.answered_same else None


def judge_silence(self: Probing, watch: Any, outcome: ProbeOutcome, now_ms: int) -> None:
    """Bug: silence counts as a bad result."""
    honest_judge(self, watch, REFUSED if outcome is SILENT else outcome, now_ms)


def judge_without_same(self: Probing, watch: Any, outcome: ProbeOutcome, now_ms: int) -> None:
    """Bug: it does not matter whether the address ever answered SAME."""
    watch.answered_same = True
    honest_judge(self, watch, outcome, now_ms)


honest_judge = Probing._judge
honest_known = Probing._broker_known
honest_ended = Probing._connection_ended
honest_heard = Probing._heartbeat_heard
honest_fences = Probing._due_fences


def heartbeat_ignored(self: Probing, heard: HeartbeatHeard) -> None:
    """Bug: a heartbeat does not clear what was gathered."""
    watch = self._watches.get(heard.broker_id)
    kept = watch and (watch.is_suspect, watch.first_bad_result_ms, watch.proven_ms, watch.next_probe_ms)
    honest_heard(self, heard)
    if watch is not None and kept is not None:
        watch.is_suspect, watch.first_bad_result_ms, watch.proven_ms, watch.next_probe_ms = kept


def same_of_any_life(self: Probing, known: BrokerKnown, now_ms: int) -> None:
    """Bug: SAME is remembered per broker id, not per incarnation."""
    old = self._watches.get(known.broker_id)
    honest_known(self, known, now_ms)
    if old is not None and old.answered_same:
        self._watches[known.broker_id].answered_same = True


def any_end_counts(self: Probing, ended: ConnectionEnded, now_ms: int) -> None:
    """Bug: it does not matter who closed the connection."""
    honest_ended(self, ConnectionEnded(ended.connection_number, False), now_ms)


def old_connections_count(self: Probing, ended: ConnectionEnded, now_ms: int) -> None:
    """Bug: the end of any connection of the broker makes it a suspect."""
    broker = self._connections.pop(ended.connection_number, None)
    watch = None if broker is None else self._watches.get(broker[0])
    if watch is not None and self.is_active:
        watch.is_connected = False
        self._suspect(watch, now_ms)


def fence_one_by_one(self: Probing, now_ms: int) -> tuple[FenceTarget, ...]:
    """Bug: nothing is gathered."""
    for watch in self._watches.values():
        if self.is_active and watch.proven_ms is not None and not watch.is_fence_sent:
            watch.is_fence_sent = True
            return (FenceTarget(watch.broker_id, watch.broker_epoch, watch.connection_number),)
    return ()


def fence_without_names(self: Probing, now_ms: int) -> tuple[FenceTarget, ...]:
    """Bug: the fence does not carry epoch and connection."""
    return tuple(FenceTarget(target.broker_id, -1, None) for target in honest_fences(self, now_ms))


def no_grace(self: Probing, now_ms: int) -> None:
    """Bug: a new active controller suspects at once."""
    self.is_active = True
    for watch in self._watches.values():
        if not watch.fenced and not watch.is_connected:
            self._suspect(watch, now_ms)


def standby_fences(self: Probing, now_ms: int) -> tuple[FenceTarget, ...]:
    """Bug: a standby fences too, on what it saw."""
    self.is_active = True
    for watch in self._watches.values():
        watch.proven_ms = watch.doubted_ms
    return honest_fences(self, now_ms)


def doubt_is_proof(self: Probing, now_ms: int) -> None:
    """Bug: what a standby saw counts as both results."""
    honest_active(self, now_ms)
    for watch in self._watches.values():
        watch.proven_ms = watch.doubted_ms


def doubt_for_ever(self: Probing, now_ms: int) -> None:
    """Bug: what a standby saw never grows old."""
    for watch in self._watches.values():
        if watch.doubted_ms is not None:
            watch.doubted_ms = now_ms
    honest_active(self, now_ms)


honest_active = Probing._became_active


PLANTED: list[tuple[str, Any, Callable[[], None]]] = [
    ("_judge", judge_at_once, probing.test_two_results_closer_than_50_ms_prove_nothing_yet),
    (
        "_judge",
        judge_silence,
        lambda: probing.test_a_broker_that_lives_or_is_silent_is_left_to_its_session(SILENT),
    ),
    (
        "_judge",
        judge_without_same,
        lambda: probing.test_an_address_that_never_answered_same_proves_nothing(REFUSED),
    ),
    ("_heartbeat_heard", heartbeat_ignored, probing.test_a_heartbeat_between_the_two_results_starts_over),
    (
        "_broker_known",
        same_of_any_life,
        probing.test_an_answer_of_an_older_incarnation_does_not_count_for_the_new_one,
    ),
    ("_connection_ended", any_end_counts, probing.test_a_connection_that_we_closed_starts_no_probe),
    (
        "_connection_ended",
        old_connections_count,
        probing.test_the_end_of_an_old_connection_says_nothing_about_a_new_one,
    ),
    ("_due_fences", fence_one_by_one, probing.test_losses_within_20_ms_are_fenced_in_one_plan),
    ("_due_fences", fence_without_names, probing.test_the_fence_names_epoch_and_connection),
    ("_became_active", no_grace, probing.test_a_broker_that_connects_to_the_new_controller_in_time_is_not_probed),
    (
        "_due_fences",
        standby_fences,
        standbys.test_a_standby_looks_once_when_a_connection_ends_and_fences_nobody,
    ),
    ("_became_active", doubt_is_proof, standbys.test_what_a_standby_saw_alone_fences_nobody),
    ("_became_active", doubt_for_ever, standbys.test_what_a_standby_saw_long_ago_does_not_count),
]


@pytest.mark.parametrize(("method", "bug", "notices"), PLANTED, ids=[bug.__name__ for _, bug, _ in PLANTED])
def test_planted_bugs_are_noticed(
    monkeypatch: pytest.MonkeyPatch, method: str, bug: Any, notices: Callable[[], None]
) -> None:
    notices()
    monkeypatch.setattr(Probing, method, bug)
    with pytest.raises(AssertionError):
        notices()
