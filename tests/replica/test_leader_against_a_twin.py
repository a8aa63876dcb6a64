"""The leader's state against a naive twin that recomputes everything from the whole history, under random steps; and
bugs planted in it, each of which the comparison must catch."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kraft.broker.replica.isr import AnswerVerdict, IsrAnswer, IsrProposal
from kraft.broker.replica.leader import FollowerProgress, LeaderState
from kraft.image.partitions import PartitionState
from kraft.wire.error_codes import ErrorCode

LAG_MS = 1_000
REPLICAS = (1, 2, 3, 4)


class Disagreement(AssertionError):
    """The state and its twin differ."""


class Twin:
    """What must hold, written down from the rules and the truth about every log."""

    def __init__(self, end: int, isr: tuple[int, ...], min_isr: int, high_watermark: int) -> None:
        self.end = end
        self.epoch_start = end
        self.isr = set(isr)
        self.maximal = set(isr)
        self.min_isr = min_isr
        self.high_watermark = high_watermark
        self.fetched: dict[int, int] = {}
        self.caught_up_ms = dict.fromkeys(isr, 0)
        self.last: dict[int, tuple[int, int]] = {}
        self.epochs: dict[int, int] = {}
        self.taken_out: set[int] = set()

    def fetch(self, replica: int, offset: int, now_ms: int, epoch: int) -> None:
        leader_end_then, then_ms = self.last.get(replica, (None, 0))
        if offset >= self.end:
            self.caught_up_ms[replica] = now_ms
        elif leader_end_then is not None and offset >= leader_end_then:
            self.caught_up_ms[replica] = max(self.caught_up_ms.get(replica, -(10**9)), then_ms)
        self.fetched[replica] = offset
        self.last[replica] = (self.end, now_ms)
        self.epochs[replica] = epoch

    def in_time(self, replica: int, now_ms: int) -> bool:
        return self.fetched.get(replica) == self.end or now_ms - self.caught_up_ms.get(replica, -(10**9)) <= LAG_MS

    def expected_high_watermark(self, now_ms: int, eligible: dict[int, int]) -> int:
        if len(self.isr) < min(self.min_isr, len(REPLICAS)):
            return self.high_watermark
        bounding = set(self.maximal)
        for replica in REPLICAS[1:]:
            joins = replica in eligible and self.epochs.get(replica, -1) in (eligible[replica], -1)
            if joins and replica not in self.taken_out and self.in_time(replica, now_ms):
                bounding.add(replica)
        least = min(self.end if replica == 1 else self.fetched.get(replica, -1) for replica in bounding)
        return max(self.high_watermark, least)

    def may_join(self, replica: int, eligible: dict[int, int]) -> bool:
        offset = self.fetched.get(replica, -1)
        return (
            replica not in self.maximal
            and replica not in self.taken_out
            and offset >= self.high_watermark
            and offset >= self.epoch_start
            and eligible.get(replica) == self.epochs.get(replica)
        )


def check(condition: object, what: str) -> None:
    if not condition:
        raise Disagreement(what)


def run_steps(seed: int, steps: int = 300) -> int:
    """Random steps on a LeaderState and its twin; how often the high watermark moved."""
    random = Random(seed)
    isr = tuple(sorted({1, *random.sample(REPLICAS, random.randrange(1, 5))}))
    min_isr = random.randrange(1, 4)
    state = LeaderState(
        1,
        PartitionState(REPLICAS, isr, 1, 5, 7),
        log_end_offset=10,
        own_share=10,
        high_watermark=random.randrange(0, 11),
        min_isr=min_isr,
        lag_ms_max=LAG_MS,
        now_ms=0,
    )
    twin = Twin(10, isr, min_isr, state.high_watermark)
    eligible = {replica: 100 + replica for replica in REPLICAS}
    ends = dict.fromkeys(REPLICAS[1:], 0)
    pending: IsrProposal | None = None
    now_ms = moved = 0
    partition_epoch = 7

    def compare(what: str) -> None:
        check(state.high_watermark == twin.high_watermark, f"{what}: high watermark {state.high_watermark}")
        check(state.isr.committed == twin.isr, f"{what}: in-sync set")
        check(state.isr.maximal == twin.maximal, f"{what}: maximal set")
        check(state.has_enough_replicas == (len(twin.isr) >= min(twin.min_isr, 4)), f"{what}: enough replicas")

    def advance() -> None:
        nonlocal moved
        mark = twin.expected_high_watermark(now_ms, eligible)
        moved += mark != twin.high_watermark
        twin.high_watermark = mark

    def take(proposal: IsrProposal | None) -> None:
        nonlocal pending
        if proposal is not None:
            check(pending is None, "two changes are pending")
            pending = proposal
            twin.maximal = twin.isr | proposal.ids

    for _ in range(steps):
        now_ms += random.choice((0, 1, 50, 700))
        step = random.randrange(8)
        if step <= 1:
            twin.end += random.randrange(1, 4)
            state.appended(twin.end, twin.end, now_ms, eligible)
            if twin.maximal == {1}:
                advance()
            compare("append")
        elif step <= 4:
            replica = random.choice(REPLICAS[1:])
            ends[replica] = min(twin.end, ends[replica] + random.choice((0, 1, 2, 20)))
            epoch = eligible.get(replica, 100 + replica) - (random.random() < 0.1)
            twin.fetch(replica, ends[replica], now_ms, epoch)
            joins = pending is None and twin.may_join(replica, eligible)
            effects = state.fetched(replica, ends[replica], 0, twin.end, now_ms, epoch, eligible)
            check((effects.proposal is not None) == joins, f"fetch: joins {joins}")
            take(effects.proposal)
            before = twin.high_watermark
            if ends[replica] > before:
                advance()
            check(effects.high_watermark_moved == (twin.high_watermark != before), "fetch: moved")
            compare("fetch")
        elif step == 5:
            lagging = {one for one in twin.isr - {1} if not twin.in_time(one, now_ms)}
            shrinks = pending is None and bool(lagging)
            proposal = state.check_lag(now_ms)
            check((proposal is not None) == shrinks, f"lag: shrinks {shrinks}")
            if proposal is not None:
                check(proposal.ids == twin.isr - lagging, "lag: members")
            take(proposal)
            compare("lag")
        elif step == 6 and pending is not None:
            outcome = random.randrange(3)
            if outcome == 0:
                partition_epoch += 1
                members = tuple(sorted(pending.ids))
                answer = IsrAnswer(ErrorCode.NONE, 5, partition_epoch, members)
                check(state.answered(pending, answer, now_ms, eligible)[0] is AnswerVerdict.COMMITTED, "committed")
                twin.isr = set(members)
                twin.maximal = set(members)
                advance()
                pending = None
            elif outcome == 1:
                answer = IsrAnswer(ErrorCode.INELIGIBLE_REPLICA)
                check(state.answered(pending, answer, now_ms, eligible)[0] is AnswerVerdict.REVERTED, "reverted")
                twin.maximal = set(twin.isr)
                advance()
                pending = None
            else:
                answer = IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION)
                state.answered(pending, answer, now_ms, eligible)
            compare("answer")
        elif step == 7 and random.random() < 0.1:
            state.metadata_changed(PartitionState(REPLICAS, tuple(twin.isr), 1, 5, partition_epoch), now_ms, eligible)
            advance()
            compare("metadata that an answer has told before")
        elif step == 7 and random.random() < 0.3:
            replica = random.choice(REPLICAS[1:])
            if replica in eligible:
                del eligible[replica]
            else:
                eligible[replica] = 100 + replica
            partition_epoch += 1
            members = tuple(sorted({1, *random.sample(sorted(twin.isr), random.randrange(len(twin.isr) + 1))}))
            state.metadata_changed(PartitionState(REPLICAS, members, 1, 5, partition_epoch), now_ms, eligible)
            twin.taken_out |= (twin.isr - set(members)) & (twin.isr if pending is None else pending.ids)
            twin.isr = set(members)
            twin.maximal = set(members)
            pending = None
            advance()
            compare("metadata")
        elif step == 7:
            waiting = {one for one in REPLICAS[1:] if one in twin.taken_out and twin.in_time(one, now_ms)}
            by_timer = random.random() < 0.5
            if by_timer:
                twin.taken_out -= waiting
                proposal = state.check_left(now_ms, eligible)
                joins = {one for one in REPLICAS[1:] if twin.may_join(one, eligible)} if waiting else set()
            else:
                twin.taken_out.clear()
                joins = {one for one in REPLICAS[1:] if twin.may_join(one, eligible)}
                proposal = state.brokers_changed(now_ms, eligible).proposal
            joins = set() if pending is not None else joins
            check((set() if proposal is None else proposal.ids - twin.isr) == joins, f"taken out: {joins} join")
            take(proposal)
            if not by_timer:
                advance()
            compare("taken out")
    return moved


def test_state_and_twin_agree() -> None:
    assert sum(run_steps(seed) for seed in range(150)) > 1_000, "the high watermark moved in these runs"


Patch = Callable[[pytest.MonkeyPatch], Any]


def _committed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.broker.replica.isr.InSyncSet.propose", lambda self, p: setattr(self, "pending", p))


def _below_min_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = LeaderState._advance

    def unguarded(self: LeaderState, now_ms: int, eligible: dict[int, int]) -> bool:
        kept, self.effective_min_isr = self.effective_min_isr, 0
        moved = advance(self, now_ms, eligible)
        self.effective_min_isr = kept
        return moved

    monkeypatch.setattr(LeaderState, "_advance", unguarded)


def _join_before_epoch_start(monkeypatch: pytest.MonkeyPatch) -> None:
    propose = LeaderState._propose_expand

    def early(self: LeaderState, replica: int, progress: FollowerProgress, eligible: dict[int, int]) -> Any:
        kept, self.epoch_start_offset = self.epoch_start_offset, 0
        proposal = propose(self, replica, progress, eligible)
        self.epoch_start_offset = kept
        return proposal

    monkeypatch.setattr(LeaderState, "_propose_expand", early)


def _old_incarnation_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kraft.broker.replica.leader._is_eligible", lambda broker_id, epoch, eligible: broker_id in eligible
    )


def _joiners_do_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderState, "_is_about_to_join", lambda *_: False)


def _caught_up_by_the_newest_end_only(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = FollowerProgress.fetched

    def strict(self: FollowerProgress, offset: int, start: int, end: int, now_ms: int, epoch: int) -> None:
        self.leader_end_then = 2**62
        fetched(self, offset, start, end, now_ms, epoch)

    monkeypatch.setattr(FollowerProgress, "fetched", strict)


@pytest.mark.parametrize(
    "plant",
    [
        _committed_only,
        _below_min_isr,
        _join_before_epoch_start,
        _old_incarnation_joins,
        _joiners_do_not_bound,
        _caught_up_by_the_newest_end_only,
    ],
)
def test_a_planted_bug_is_caught(plant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Disagreement):
        for seed in range(150):
            run_steps(seed)
