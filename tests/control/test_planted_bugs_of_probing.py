"""A planted bug for each rule (clause) of the failure detector, and the test that must catch the bug."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraft.control import FenceTarget
from kraft.control.brokers.probing import (
    BrokerConnectionEnded,
    BrokerKnown,
    HeartbeatReceived,
    ProbeOutcome,
    Probing,
)
from tests.control import test_probing as probing
from tests.control import test_probing_by_standbys as standbys
from tests.control.detector import CLOSED, OTHER, REFUSED, SILENT


def judge_at_once(self: Probing, watch: Any, outcome: ProbeOutcome, now_ms: int) -> None:
    """Bug: one bad result is enough proof."""
    watch.proven_ms = now_ms if outcome in (OTHER, REFUSED, CLOSED) and watch.answered_same else None


def judge_silence(self: Probing, watch: Any, outcome: ProbeOutcome, now_ms: int) -> None:
    """Bug: silence counts as a bad result."""
    honest_judge(self, watch, REFUSED if outcome is SILENT else outcome, now_ms)


def judge_without_same(self: Probing, watch: Any, outcome: ProbeOutcome, now_ms: int) -> None:
    """Bug: no earlier SAME answer of the address is needed."""
    watch.answered_same = True
    honest_judge(self, watch, outcome, now_ms)


honest_judge = Probing._judge
honest_known = Probing._broker_known
honest_ended = Probing._connection_ended
honest_heard = Probing._heartbeat_received
honest_fences = Probing._due_fences


def heartbeat_ignored(self: Probing, heard: HeartbeatReceived) -> None:
    """Bug: a heartbeat does not clear earlier bad results."""
    watch = self._watches.get(heard.broker_id)
    kept = watch and (watch.is_suspect, watch.first_bad_result_ms, watch.proven_ms, watch.next_probe_ms)
    honest_heard(self, heard)
    if watch is not None and kept is not None:
        watch.is_suspect, watch.first_bad_result_ms, watch.proven_ms, watch.next_probe_ms = kept


def same_of_any_life(self: Probing, known: BrokerKnown, now_ms: int) -> None:
    """Bug: a SAME answer counts for every incarnation of the broker id, not only for its own."""
    old = self._watches.get(known.broker_id)
    honest_known(self, known, now_ms)
    if old is not None and old.answered_same:
        self._watches[known.broker_id].answered_same = True


def any_end_counts(self: Probing, ended: BrokerConnectionEnded, now_ms: int) -> None:
    """Bug: a connection that the controller closed counts too."""
    honest_ended(self, BrokerConnectionEnded(ended.connection_number, False), now_ms)


def old_connections_make_suspects(self: Probing, ended: BrokerConnectionEnded, now_ms: int) -> None:
    """Bug: the end of any connection of the broker makes it a suspect."""
    broker = self._connections.pop(ended.connection_number, None)
    watch = None if broker is None else self._watches.get(broker[0])
    if watch is not None and self.is_active:
        watch.is_connected = False
        self._suspect(watch, now_ms)


def fence_one_by_one(self: Probing, now_ms: int) -> tuple[FenceTarget, ...]:
    """Bug: losses are not gathered into one plan."""
    for watch in self._watches.values():
        if self.is_active and watch.proven_ms is not None and not watch.is_fence_sent:
            watch.is_fence_sent = True
            return (FenceTarget(watch.broker_id, watch.broker_epoch, watch.connection_number),)
    return ()


def fence_without_names(self: Probing, now_ms: int) -> tuple[FenceTarget, ...]:
    """Bug: the fence does not name epoch and connection."""
    return tuple(FenceTarget(target.broker_id, -1, None) for target in honest_fences(self, now_ms))


def no_grace(self: Probing, now_ms: int) -> None:
    """Bug: a new active controller suspects brokers at once."""
    self.is_active = True
    for watch in self._watches.values():
        if not watch.fenced and not watch.is_connected:
            self._suspect(watch, now_ms)


def standby_fences(self: Probing, now_ms: int) -> tuple[FenceTarget, ...]:
    """Bug: a standby fences too, by its own probes."""
    self.is_active = True
    for watch in self._watches.values():
        watch.proven_ms = watch.bad_result_on_standby_ms
    return honest_fences(self, now_ms)


def standby_result_counts_twice(self: Probing, now_ms: int) -> None:
    """Bug: one result of a standby counts as both of the two results that prove a death."""
    honest_active(self, now_ms)
    for watch in self._watches.values():
        watch.proven_ms = watch.bad_result_on_standby_ms


def standby_result_never_expires(self: Probing, now_ms: int) -> None:
    """Bug: a result of a standby never expires."""
    for watch in self._watches.values():
        if watch.bad_result_on_standby_ms is not None:
            watch.bad_result_on_standby_ms = now_ms
    honest_active(self, now_ms)


honest_active = Probing._became_active


PLANTED: list[tuple[str, Any, Callable[[], None]]] = [
    ("_judge", judge_at_once, probing.test_two_bad_probe_results_closer_than_50_ms_are_no_proof),
    (
        "_judge",
        judge_silence,
        lambda: probing.test_suspect_that_answers_probes_or_is_silent_is_fenced_only_at_its_session_timeout(SILENT),
    ),
    (
        "_judge",
        judge_without_same,
        lambda: probing.test_bad_probe_results_of_an_address_that_never_answered_same_are_no_proof(REFUSED),
    ),
    ("_heartbeat_received", heartbeat_ignored, probing.test_heartbeat_between_two_bad_probe_results_clears_the_first),
    (
        "_broker_known",
        same_of_any_life,
        probing.test_same_answer_of_an_older_incarnation_does_not_count_for_the_new_one,
    ),
    ("_connection_ended", any_end_counts, probing.test_connection_closed_by_the_controller_starts_no_probe),
    (
        "_connection_ended",
        old_connections_make_suspects,
        probing.test_end_of_an_old_connection_does_not_make_a_reconnected_broker_a_suspect,
    ),
    ("_due_fences", fence_one_by_one, probing.test_brokers_lost_within_20_ms_are_fenced_in_one_plan),
    ("_due_fences", fence_without_names, probing.test_fence_of_a_dead_broker_names_its_epoch_and_connection),
    ("_became_active", no_grace, probing.test_broker_that_connects_to_the_new_controller_in_time_is_not_probed),
    (
        "_due_fences",
        standby_fences,
        standbys.test_standby_probes_once_when_a_connection_ends_and_does_not_fence,
    ),
    ("_became_active", standby_result_counts_twice, standbys.test_bad_result_of_a_standby_alone_does_not_fence),
    (
        "_became_active",
        standby_result_never_expires,
        standbys.test_bad_probe_result_of_a_standby_does_not_count_if_it_is_too_old_when_it_becomes_active,
    ),
]


@pytest.mark.parametrize(("method", "bug", "notices"), PLANTED, ids=[bug.__name__ for _, bug, _ in PLANTED])
def test_checks_catch_each_planted_bug_of_the_failure_detector(
    monkeypatch: pytest.MonkeyPatch, method: str, bug: Any, notices: Callable[[], None]
) -> None:
    notices()
    monkeypatch.setattr(Probing, method, bug)
    with pytest.raises(AssertionError):
        notices()
