"""The failure detector, clause by clause, and a planted bug for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.control import FenceTarget
from kraft.control import probing as probing_module
from kraft.control.probing import (
    CONNECT_GRACE_MS,
    DOUBT_MS,
    FIRST_ANSWER_RETRY_MS,
    GATHER_MS,
    PROBES_UNDER_WAY_MAX,
    RESULTS_APART_MS,
    BecameActive,
    BecameStandby,
    BrokerForgotten,
    BrokerKnown,
    ConnectionEnded,
    HeartbeatHeard,
    ProbeActions,
    ProbeAnswered,
    ProbeOutcome,
    Probing,
    Tick,
)
from kraft.image import Endpoint
from tests.control.cluster import incarnation_id

SAME, OTHER, REFUSED, CLOSED, SILENT = ProbeOutcome


class Detector:
    """Drives the machine: what is at each address answers after `delay_ms`."""

    def __init__(self) -> None:
        self.machine = Probing()
        self.now_ms = 1_000
        self.delay_ms = 1
        self.addresses: dict[int, ProbeOutcome] = {}
        self.fenced: list[tuple[int, tuple[FenceTarget, ...]]] = []
        self.probes: list[tuple[int, int]] = []
        self._due: list[tuple[int, int, int]] = []
        self._deadline_ms: int | None = None

    def tell(self, happened: Any) -> ProbeActions:
        actions = self.machine.step(happened, self.now_ms)
        for probe in actions.probes:
            self.probes.append((self.now_ms, probe.broker_id))
            self._due.append((self.now_ms + self.delay_ms, probe.probe_id, probe.broker_id))
        if actions.fence:
            self.fenced.append((self.now_ms, actions.fence))
        self._deadline_ms = actions.deadline_ms
        return actions

    def run(self, duration_ms: int) -> None:
        """Let time pass, one millisecond at a time."""
        for _ in range(duration_ms):
            self.now_ms += 1
            for due in [one for one in self._due if one[0] <= self.now_ms]:
                self._due.remove(due)
                self.tell(ProbeAnswered(due[1], self.addresses.get(due[2], SILENT)))
            if self._deadline_ms is not None and self._deadline_ms <= self.now_ms:
                self.tell(Tick())

    def broker(self, broker_id: int, *, fenced: bool = False, life: int = 1, epoch: int | None = None) -> None:
        self.tell(
            BrokerKnown(
                broker_id,
                epoch if epoch is not None else 100 + broker_id,
                incarnation_id(broker_id, life),
                Endpoint("PLAINTEXT", "localhost", 9000 + broker_id),
                fenced,
            )
        )

    def heartbeat(self, broker_id: int, *, connection: int | None = None, epoch: int | None = None) -> None:
        number = 1000 + broker_id if connection is None else connection
        self.tell(HeartbeatHeard(broker_id, epoch if epoch is not None else 100 + broker_id, number))

    def lose(self, broker_id: int, *, connection: int | None = None, closed_by_us: bool = False) -> None:
        self.tell(ConnectionEnded(1000 + broker_id if connection is None else connection, closed_by_us))

    @property
    def fenced_ids(self) -> list[int]:
        return [target.broker_id for _, targets in self.fenced for target in targets]


def serving(*broker_ids: int, same: bool = True) -> Detector:
    """An active controller whose brokers are connected, and have answered SAME unless told otherwise."""
    detector = Detector()
    detector.tell(BecameActive())
    for broker_id in broker_ids:
        detector.addresses[broker_id] = SAME if same else REFUSED
        detector.heartbeat(broker_id)
        detector.broker(broker_id)
    detector.run(10)
    assert not detector.fenced
    return detector


def crash(detector: Detector, broker_id: int, outcome: ProbeOutcome = REFUSED) -> None:
    detector.addresses[broker_id] = outcome
    detector.lose(broker_id)


@pytest.mark.parametrize("outcome", [REFUSED, CLOSED])
def test_a_dead_process_is_fenced_after_two_bad_results_50_ms_apart(outcome: ProbeOutcome) -> None:
    detector = serving(1, 2, 3)
    detector.run(5_000)
    lost_ms = detector.now_ms
    crash(detector, 1, outcome)
    detector.run(200)
    assert detector.fenced_ids == [1]
    assert RESULTS_APART_MS <= detector.fenced[0][0] - lost_ms <= RESULTS_APART_MS + 10


def test_refused_and_closed_count_alike() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1, CLOSED)
    detector.run(5)
    detector.addresses[1] = REFUSED
    detector.run(100)
    assert detector.fenced_ids == [1]


def test_two_results_closer_than_50_ms_prove_nothing_yet() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(RESULTS_APART_MS - 1)
    assert not detector.fenced
    assert sum(1 for _, broker_id in detector.probes if broker_id == 1) == 2  # the first answer, and one of the suspect


def test_a_heartbeat_between_the_two_results_starts_over() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(20)
    detector.heartbeat(1, connection=2001)
    detector.run(500)
    assert not detector.fenced


def test_a_heartbeat_after_the_proof_and_before_the_plan_saves_the_broker() -> None:
    detector = serving(1, 2)
    detector.run(100)
    crash(detector, 1)
    detector.run(RESULTS_APART_MS - 10)
    detector.delay_ms = 500
    crash(detector, 2)  # a suspect that keeps the plan open
    detector.run(15)
    assert not detector.fenced
    detector.heartbeat(1, connection=2001)
    detector.run(1_000)
    assert 1 not in detector.fenced_ids


@pytest.mark.parametrize("outcome", [REFUSED, CLOSED])
def test_an_address_that_never_answered_same_proves_nothing(outcome: ProbeOutcome) -> None:
    detector = serving(1, same=False)
    crash(detector, 1, outcome)
    detector.run(20_000)
    assert not detector.fenced


def test_an_answer_of_an_older_incarnation_does_not_count_for_the_new_one() -> None:
    detector = serving(1)
    detector.run(100)
    detector.addresses[1] = REFUSED
    detector.heartbeat(1, connection=2001, epoch=500)
    detector.broker(1, life=2, epoch=500)
    detector.run(50)
    detector.lose(1, connection=2001)
    detector.run(10_000)
    assert not detector.fenced


def test_other_at_the_address_proves_it_at_once() -> None:
    detector = serving(1)
    detector.run(100)
    lost_ms = detector.now_ms
    crash(detector, 1, OTHER)
    detector.run(100)
    assert detector.fenced_ids == [1]
    assert detector.fenced[0][0] - lost_ms < 10


def test_other_proves_it_also_where_same_was_never_heard() -> None:
    detector = serving(1, same=False)
    detector.run(100)
    crash(detector, 1, OTHER)
    detector.run(100)
    assert detector.fenced_ids == [1]


@pytest.mark.parametrize("outcome", [SAME, SILENT])
def test_a_broker_that_lives_or_is_silent_is_left_to_its_session(outcome: ProbeOutcome) -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1, outcome)
    detector.run(20_000)
    assert not detector.fenced


def test_silence_after_a_refusal_proves_nothing() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(10)
    detector.addresses[1] = SILENT
    detector.run(5_000)
    assert not detector.fenced


def test_a_connection_that_we_closed_starts_no_probe() -> None:
    detector = serving(1)
    detector.run(100)
    probes = len(detector.probes)
    detector.addresses[1] = REFUSED
    detector.lose(1, closed_by_us=True)
    detector.run(5_000)
    assert len(detector.probes) == probes
    assert not detector.fenced


def test_the_end_of_an_old_connection_says_nothing_about_a_new_one() -> None:
    detector = serving(1)
    detector.run(100)
    detector.heartbeat(1, connection=2001)
    probes = len(detector.probes)
    detector.addresses[1] = REFUSED
    detector.lose(1, connection=1001)
    detector.run(5_000)
    assert len(detector.probes) == probes


def test_the_fence_names_epoch_and_connection() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(200)
    assert detector.fenced[0][1] == (FenceTarget(1, 101, 1001),)


def test_the_fence_names_the_last_connection_also_if_that_ended_before_the_broker_was_known() -> None:
    detector = Detector()
    detector.addresses[1] = SAME
    detector.heartbeat(1, connection=33)
    detector.heartbeat(1, connection=22)
    detector.heartbeat(1, connection=11, epoch=100)
    detector.lose(1, connection=33)
    detector.lose(1, connection=22)
    detector.lose(1, connection=11)
    detector.broker(1)
    assert detector.machine.connection(1) == (22, False)
    detector.run(10)
    detector.tell(BecameActive())
    detector.addresses[1] = REFUSED
    detector.run(CONNECT_GRACE_MS + RESULTS_APART_MS + GATHER_MS)
    assert [targets for _, targets in detector.fenced] == [(FenceTarget(1, 101, 22),)]


def test_a_connection_of_a_registration_that_is_gone_is_forgotten() -> None:
    detector = serving(1)
    detector.lose(1)
    detector.tell(BrokerForgotten(1))
    detector.broker(1)
    assert detector.machine.connection(1) is None


def test_losses_within_20_ms_are_fenced_in_one_plan() -> None:
    detector = serving(1, 2, 3)
    detector.run(100)
    crash(detector, 1)
    detector.run(15)
    crash(detector, 2)
    detector.run(200)
    assert [[target.broker_id for target in targets] for _, targets in detector.fenced] == [[1, 2]]


def test_a_plan_does_not_wait_for_another_suspect_longer_than_20_ms() -> None:
    detector = serving(1, 2)
    detector.run(100)
    crash(detector, 1)
    detector.run(40)
    lost_ms = detector.now_ms
    crash(detector, 2)
    detector.run(300)
    assert [target.broker_id for target in detector.fenced[0][1]] == [1]
    assert detector.fenced[0][0] <= lost_ms - 40 + RESULTS_APART_MS + 2 + GATHER_MS
    assert detector.fenced_ids == [1, 2]


def test_a_proven_broker_is_fenced_once() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(20_000)
    assert detector.fenced_ids == [1]


def test_a_new_active_controller_probes_the_unconnected_after_100_ms() -> None:
    detector = Detector()
    for broker_id in (1, 2):
        detector.addresses[broker_id] = SAME
        detector.broker(broker_id)
        detector.heartbeat(broker_id)
    detector.run(100)
    crash(detector, 1, SILENT)  # while it is a standby
    detector.run(1_000)
    detector.addresses[1] = REFUSED
    asked = len(detector.probes)
    detector.tell(BecameActive())
    detector.run(CONNECT_GRACE_MS - 1)
    assert len(detector.probes) == asked
    detector.run(CONNECT_GRACE_MS)
    assert detector.fenced_ids == [1]


def test_a_broker_that_connects_to_the_new_controller_in_time_is_not_probed() -> None:
    detector = Detector()
    detector.addresses[1] = SAME
    detector.broker(1)
    detector.run(100)
    asked = len(detector.probes)
    detector.tell(BecameActive())
    detector.run(CONNECT_GRACE_MS - 10)
    detector.heartbeat(1)
    detector.run(1_000)
    assert len(detector.probes) == asked


def standby(broker_id: int = 1) -> Detector:
    """A standby that a broker is connected to, which has answered SAME."""
    detector = Detector()
    detector.addresses[broker_id] = SAME
    detector.heartbeat(broker_id)
    detector.broker(broker_id)
    detector.run(100)
    assert len(detector.probes) == 1
    return detector


def test_a_standby_looks_once_when_a_connection_ends_and_fences_nobody() -> None:
    detector = standby()
    crash(detector, 1)
    detector.run(20_000)
    assert len(detector.probes) == 2
    assert not detector.fenced


@pytest.mark.parametrize("outcome", [REFUSED, CLOSED, OTHER])
def test_what_a_standby_saw_just_now_spares_it_the_grace(outcome: ProbeOutcome) -> None:
    detector = standby()
    crash(detector, 1, outcome)
    detector.run(300)
    active_ms = detector.now_ms
    detector.tell(BecameActive())
    detector.run(500)
    assert detector.fenced_ids == [1]
    assert detector.fenced[0][0] <= active_ms + 5


def test_also_then_the_two_results_are_50_ms_apart() -> None:
    detector = standby()
    lost_ms = detector.now_ms
    crash(detector, 1)
    detector.run(10)
    detector.tell(BecameActive())
    detector.run(500)
    assert detector.fenced_ids == [1]
    assert detector.fenced[0][0] >= lost_ms + RESULTS_APART_MS


def test_what_a_standby_saw_alone_fences_nobody() -> None:
    detector = standby()
    crash(detector, 1)
    detector.run(300)
    detector.addresses[1] = SAME
    detector.tell(BecameActive())
    detector.run(5_000)
    assert not detector.fenced


def test_what_a_standby_saw_is_void_when_the_broker_connects_again() -> None:
    detector = standby()
    crash(detector, 1)
    detector.run(20)
    detector.heartbeat(1, connection=2001)
    detector.run(20)
    asked = len(detector.probes)
    detector.tell(BecameActive())
    detector.run(5_000)
    assert len(detector.probes) == asked
    assert not detector.fenced


def test_what_a_standby_saw_long_ago_does_not_count() -> None:
    detector = standby()
    crash(detector, 1)
    detector.run(DOUBT_MS + 100)
    active_ms = detector.now_ms
    detector.tell(BecameActive())
    detector.run(1_000)
    assert detector.fenced_ids == [1]
    assert detector.fenced[0][0] >= active_ms + CONNECT_GRACE_MS + RESULTS_APART_MS


def test_losing_leadership_ends_all_suspicion() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(20)
    detector.tell(BecameStandby())
    detector.run(5_000)
    assert not detector.fenced


def test_a_fenced_broker_is_not_suspected() -> None:
    detector = serving(1)
    detector.run(100)
    detector.broker(1, fenced=True)
    crash(detector, 1)
    detector.run(5_000)
    assert not detector.fenced


def test_a_broker_that_was_forgotten_is_not_fenced() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(20)
    detector.tell(BrokerForgotten(1))
    detector.run(5_000)
    assert not detector.fenced


def test_a_new_registration_ends_the_suspicion_of_the_old_one() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(20)
    detector.heartbeat(1, connection=2001, epoch=500)
    detector.broker(1, life=2, epoch=500, fenced=True)
    detector.run(5_000)
    assert not detector.fenced


def test_at_most_32_probes_are_under_way_and_suspects_come_first() -> None:
    detector = Detector()
    detector.delay_ms = 10
    detector.tell(BecameActive())
    for broker_id in range(100):
        detector.heartbeat(broker_id)
        detector.broker(broker_id)
    assert len(detector.probes) == PROBES_UNDER_WAY_MAX
    detector.lose(99)
    detector.run(12)
    assert detector.probes[PROBES_UNDER_WAY_MAX][1] == 99


def test_an_address_without_a_first_answer_is_asked_three_times() -> None:
    detector = serving(1, same=False)
    detector.run(20 * FIRST_ANSWER_RETRY_MS)
    assert len(detector.probes) == 3


def test_probes_of_a_flapping_broker_are_50_ms_apart() -> None:
    detector = serving(1)
    for number in range(2_000, 2_100):
        detector.lose(1, connection=number - 1 if number > 2_000 else None)
        detector.heartbeat(1, connection=number)
        detector.lose(1, connection=number)
        detector.run(7)
    times = [at for at, _ in detector.probes]
    assert all(later - earlier >= RESULTS_APART_MS for earlier, later in itertools.pairwise(times))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(1, 120)),
        st.tuples(st.just("heartbeat"), st.integers(1, 3)),
        st.tuples(st.just("lose"), st.integers(1, 3)),
        st.tuples(st.just("address"), st.sampled_from(ProbeOutcome)),
        st.tuples(st.just("active"), st.booleans()),
    ),
    max_size=30,
)


@given(steps=steps, first=st.sampled_from(ProbeOutcome))
def test_no_broker_is_fenced_without_proof(steps: list[tuple[str, Any]], first: ProbeOutcome) -> None:
    """K1, recomputed from what the machine was told."""
    detector = Detector()
    told: list[tuple[int, str, ProbeOutcome | None]] = []
    tell = detector.tell

    def remember(happened: Any) -> ProbeActions:
        if isinstance(happened, ProbeAnswered):
            told.append((detector.now_ms, "result", happened.outcome))
        elif isinstance(happened, HeartbeatHeard):
            told.append((detector.now_ms, "heartbeat", None))
        return tell(happened)

    detector.tell = remember  # type: ignore[method-assign]
    detector.addresses[1] = first
    detector.tell(BecameActive())
    detector.broker(1)
    connection = 1
    for kind, value in steps:
        if kind == "run":
            detector.run(value)
        elif kind == "heartbeat":
            connection += 1
            detector.heartbeat(1, connection=connection)
        elif kind == "lose":
            detector.lose(1, connection=connection)
        elif kind == "address":
            detector.addresses[1] = value
        else:
            detector.tell(BecameActive() if value else BecameStandby())
    for at_ms, _ in detector.fenced:
        before = [one for one in told if one[0] <= at_ms]
        last_heartbeat = max((index for index, one in enumerate(before) if one[1] == "heartbeat"), default=-1)
        since = before[last_heartbeat + 1 :]
        if any(one[2] is OTHER for one in since):
            continue
        bad = [one[0] for one in since if one[2] in (REFUSED, CLOSED)]
        assert any(one[2] is SAME for one in before)
        assert bad
        assert max(bad) - min(bad) >= RESULTS_APART_MS


# planted bugs: the clause is broken, and the named test must notice


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
    ("_judge", judge_at_once, test_two_results_closer_than_50_ms_prove_nothing_yet),
    ("_judge", judge_silence, lambda: test_a_broker_that_lives_or_is_silent_is_left_to_its_session(SILENT)),
    ("_judge", judge_without_same, lambda: test_an_address_that_never_answered_same_proves_nothing(REFUSED)),
    ("_heartbeat_heard", heartbeat_ignored, test_a_heartbeat_between_the_two_results_starts_over),
    ("_broker_known", same_of_any_life, test_an_answer_of_an_older_incarnation_does_not_count_for_the_new_one),
    ("_connection_ended", any_end_counts, test_a_connection_that_we_closed_starts_no_probe),
    ("_connection_ended", old_connections_count, test_the_end_of_an_old_connection_says_nothing_about_a_new_one),
    ("_due_fences", fence_one_by_one, test_losses_within_20_ms_are_fenced_in_one_plan),
    ("_due_fences", fence_without_names, test_the_fence_names_epoch_and_connection),
    ("_became_active", no_grace, test_a_broker_that_connects_to_the_new_controller_in_time_is_not_probed),
    ("_due_fences", standby_fences, test_a_standby_looks_once_when_a_connection_ends_and_fences_nobody),
    ("_became_active", doubt_is_proof, test_what_a_standby_saw_alone_fences_nobody),
    ("_became_active", doubt_for_ever, test_what_a_standby_saw_long_ago_does_not_count),
]


@pytest.mark.parametrize(("method", "bug", "notices"), PLANTED, ids=[bug.__name__ for _, bug, _ in PLANTED])
def test_planted_bugs_are_noticed(
    monkeypatch: pytest.MonkeyPatch, method: str, bug: Any, notices: Callable[[], None]
) -> None:
    notices()
    monkeypatch.setattr(probing_module.Probing, method, bug)
    with pytest.raises(AssertionError):
        notices()
