"""Replacements of core functions (twins), each with one planted bug, and the check that must catch it.

The test bank keeps a digest of each function that a twin replaces (tests.bugbank.originals). A test fails when that
function has changed, so that no twin becomes outdated unnoticed. The same seeds pass without a twin (test_simulation,
test_fast_elections).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraft.raft import ballots, campaign, follower, leader, raft, startup, timers, transitions
from kraft.raft.core import Core
from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.raft.log_view import LogView
from kraft.raft.raft import Raft
from kraft.raft.ready import QuorumState, Ready, Truncate
from kraft.raft.state import NEVER, Follower, Leader, Unattached
from kraft.seam import InvariantError
from kraft.sim.cores.chaos import run_chaos
from kraft.sim.cores.checks import Violation
from kraft.sim.cores.driver import Odds
from kraft.sim.cores.node import CoreNode
from kraft.sim.cores.world import CoreWorld
from kraft.wire.rpc.quorum_messages import MetadataFetchRequest, VoteRequest
from tests.bugbank.originals import plant
from tests.stages.tables import replace_row

from .test_ballots import pre_vote_of_a_follower, second_vote_after_a_lost_pre_vote_round
from .test_fast_elections import SPEED_MS, replaced, settled

SEEDS = 40


def first_catch(run: Callable[[int], object], seeds: int = SEEDS) -> str:
    """Return the name of the check that fails on the first bad seed; "" if no seed fails."""
    for seed in range(seeds):
        try:
            run(seed)
        except Violation as violation:
            return violation.name
        except InvariantError:
            return "invariant"
    return ""


def chaos(seed: int) -> None:
    run_chaos(seed, duration_ms=8000)


def hard_chaos(seed: int) -> None:
    """Run with slow disks and much loss, so that uncommitted tails are long."""
    odds = Odds(latency=(1, 25), sync=(5, 60), state_write=(5, 60), loss=30, snapshot=15)
    run_chaos(seed, voters=5, observers=0, duration_ms=12_000, world=CoreWorld(seed, 5, odds=odds))


# votes and epochs


class WorldThatDoesNotAwaitState(CoreWorld):
    """A world in which the effects of a step do not wait until its quorum state is written."""

    def _carry_out(self, node: CoreNode, raft: Raft, ready: Ready) -> None:
        self._effects(node, raft, ready)
        if ready.quorum_state is not None:
            delay = self.between(self.odds.state_write)
            self.at(delay, self._written_late, node, node.life, ready.quorum_state)

    def _written_late(self, node: CoreNode, life: int, state: QuorumState) -> None:
        if node.raft is not None and node.life == life:
            node.disk.state = state


def test_checks_catch_a_vote_sent_before_it_is_on_disk() -> None:
    def run(seed: int) -> None:
        run_chaos(seed, duration_ms=5000, world=WorldThatDoesNotAwaitState(seed, 3))

    assert first_catch(run) in ("R19", "R17", "R2")


def test_checks_catch_a_vote_forgotten_within_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(core: Core, election_deadline_ms: int) -> None:
        core.voted = None
        core.role = Unattached(election_deadline_ms)
        core.forget_all_requests_but_fetch()

    plant(monkeypatch, transitions, "to_unattached_same_epoch", twin, campaign)
    assert second_vote_after_a_lost_pre_vote_round()


def test_checks_catch_a_vote_that_compares_log_end_offsets_without_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(self: LogView, last_epoch: int, end_offset: int) -> bool:
        return end_offset >= self.end_offset

    plant(monkeypatch, LogView, "is_up_to_date", twin)
    assert first_catch(hard_chaos) in ("R13", "R6", "R7", "R11", "invariant")


def test_checks_catch_a_leader_that_resumes_its_epoch_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(core: Core) -> None:
        role = Leader(core.log.end_offset, (), core.now_ms + core.settings.check_quorum_ms, core.now_ms)
        core.role = role

    plant(monkeypatch, startup, "_resume_resigned", twin)
    assert first_catch(chaos) in ("R12", "R6", "R9", "R7", "R11", "invariant")


def test_checks_catch_a_pre_vote_that_raises_the_epoch_of_the_voter(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ballots.handle_vote

    def twin(core: Core, token: int, request: Any) -> None:
        if request.pre_vote and request.epoch > core.epoch:
            transitions.to_unattached(core, request.epoch)
        original(core, token, request)

    plant(monkeypatch, ballots, "handle_vote", twin)
    replace_row(monkeypatch, raft._REQUESTS, VoteRequest, twin)
    assert first_catch(hard_chaos) == "K4"


# the high watermark


def test_checks_catch_a_record_of_an_older_epoch_committed_by_counting_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bug: the leader commits by count, without a record of its own epoch (B01)."""
    original = leader.advance_high_watermark

    def twin(core: Core, role: Leader) -> None:
        kept, role.epoch_start_offset = role.epoch_start_offset, -1
        original(core, role)
        role.epoch_start_offset = kept

    plant(monkeypatch, leader, "advance_high_watermark", twin)
    assert first_catch(hard_chaos) == "R9"


def test_checks_catch_a_leader_that_counts_its_unsynced_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: the leader counts records that it has not synced, also as a single voter (B11b)."""
    original = leader.advance_high_watermark

    def twin(core: Core, role: Leader) -> None:
        kept, core.log.synced_end_offset = core.log.synced_end_offset, core.log.end_offset
        original(core, role)
        core.log.synced_end_offset = kept

    plant(monkeypatch, leader, "advance_high_watermark", twin)
    real_append = leader.append_events

    def append(core: Core, payload: Any) -> None:
        real_append(core, payload)
        if isinstance(core.role, Leader):
            twin(core, core.role)

    monkeypatch.setattr(leader, "append_events", append)
    assert first_catch(lambda seed: run_chaos(seed, voters=1, observers=1, duration_ms=5000)) in ("R9", "R10")


def test_checks_catch_a_fetch_that_acknowledges_unsynced_records(monkeypatch: pytest.MonkeyPatch) -> None:
    original = follower.send_fetch_if_due

    def twin(core: Core) -> None:
        kept, core.log.synced_end_offset = core.log.synced_end_offset, core.log.end_offset
        original(core)
        core.log.synced_end_offset = kept

    plant(monkeypatch, follower, "send_fetch_if_due", twin)
    assert first_catch(chaos) in ("R19", "R9")


def test_checks_catch_a_new_leader_that_reports_its_old_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    original = leader.begin_leadership

    def twin(core: Core, role: Leader) -> None:
        role.high_watermark = core.high_watermark
        original(core, role)

    plant(monkeypatch, leader, "begin_leadership", twin, campaign)
    assert first_catch(chaos) == "R9"


def test_checks_catch_a_leader_that_records_progress_from_a_diverging_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    original = leader.handle_fetch

    def twin(core: Core, token: int, request: Any) -> None:
        if isinstance(core.role, Leader) and request.epoch == core.epoch:
            key = ReplicaKey(request.replica_id, request.replica_directory_id)
            leader._record_fetch(core, core.role, key, request)
        original(core, token, request)

    plant(monkeypatch, leader, "handle_fetch", twin)
    replace_row(monkeypatch, raft._REQUESTS, MetadataFetchRequest, twin)
    assert first_catch(hard_chaos) in ("R9", "R7", "R11", "invariant")


def test_checks_catch_a_high_watermark_taken_from_a_diverging_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: the follower takes the high watermark of a diverging response (B06)."""
    original = follower._truncate

    def twin(core: Core, epoch: int, end_offset: int) -> None:
        core.raise_high_watermark(core.log.end_offset)
        original(core, epoch, end_offset)

    plant(monkeypatch, follower, "_truncate", twin)
    assert first_catch(hard_chaos) in ("R7", "R11", "invariant")


def test_checks_catch_a_removed_leader_that_counts_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader removes itself while one of the remaining voters does not answer (B08)."""

    def run(seed: int) -> None:
        world = settled(seed, 3)
        old = world.leader
        assert old is not None
        others = [n for n in world.voters.ids if n != old.node_id]
        world.cut = {(others[1], old.node_id), (old.node_id, others[1])}
        world.change_voters(VoterSet(tuple(v for v in world.voters.voters if v.key.node_id != old.node_id)))
        world.run(1500)

    assert first_catch(run, 3) == ""
    original = leader._end_offset_of_voter

    def twin(core: Core, role: Leader, node_id: int) -> int:
        return max(original(core, role, node_id), core.log.synced_end_offset if not core.is_voter else -1)

    plant(monkeypatch, leader, "_end_offset_of_voter", twin)
    assert first_catch(run, 3) == "R9"


# the log


def test_checks_catch_a_truncation_to_the_leaders_offset_without_a_comparison_of_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def twin(core: Core, epoch: int, end_offset: int) -> None:
        target = max(min(end_offset, core.log.end_offset), core.high_watermark or core.log.start_offset)
        core.log.truncate(target)
        core.out.log.append(Truncate(target))

    plant(monkeypatch, follower, "_truncate", twin)
    caught = first_catch(lambda seed: _divergent(seed))
    assert caught in ("R7", "R9", "R11", "R19", "stuck", "invariant")


def _divergent(seed: int) -> None:
    try:
        hard_chaos(seed)
    except AssertionError as error:
        if isinstance(error, Violation):
            raise
        raise Violation("stuck", str(error)) from error


def test_checks_catch_divergence_reported_for_a_fetch_below_the_log_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: the leader reports divergence for a fetch below its log start (B18)."""
    original = leader._fetch_obstacle

    def twin(core: Core, request: Any) -> Any:
        kept, core.log.snapshots = core.log.snapshots, []
        found = original(core, request)
        core.log.snapshots = kept
        return found

    plant(monkeypatch, leader, "_fetch_obstacle", twin)

    def run(seed: int) -> None:
        world = CoreWorld(seed, 3, 1, odds=Odds(snapshot=300))
        world.start(1, 2, 4)
        world.append_every(10)
        world.run(4000)
        world.start(3)
        world.run(3000)
        if not world.caught_up() and world.nodes[3].disk.end == 0:
            raise Violation("stuck", "the late voter has nothing")

    assert first_catch(run) in ("R11", "invariant", "stuck")


# voter changes


@pytest.mark.parametrize("bug", ["before the own epoch is committed", "two in flight"])
def test_checks_catch_a_voter_change_before_the_previous_one_is_committed(
    monkeypatch: pytest.MonkeyPatch, bug: str
) -> None:
    """The bug: the leader changes voters too early (B09), or twice at once (B10)."""

    def run(seed: int) -> None:
        world = CoreWorld(seed, 4)
        world.start()
        assert world.run_until(lambda: world.leader is not None and not world.leader.is_writing_state, 3000)
        if bug == "two in flight":
            assert world.run_until(world.has_active_leader, 3000)
        voters = list(world.voters.voters)
        for _ in range(2):
            voters.pop()
            world.change_voters(VoterSet(tuple(voters)))

    assert first_catch(run, 5) == ""
    plant(monkeypatch, leader, "_check_voters_change", lambda core, voters: None)
    assert first_catch(run, 5) == "R16"


def test_checks_catch_a_voter_set_kept_after_its_record_is_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int) -> None:
        world = settled(seed, 3)
        old = world.leader
        assert old is not None
        assert old.raft is not None
        others = tuple(n for n in world.nodes if n != old.node_id)
        world.partition((old.node_id,), others)
        grown = (*world.voters.voters, Voter(world.nodes[1].key.__class__(9), world.voters.voters[0].address))
        world.change_voters(VoterSet(grown))
        world.run(6000)
        world.heal()
        world.run(4000)
        if old.raft.voters != world.voters:
            raise Violation("R16", f"node {old.node_id} still has {old.raft.voters.ids}")

    assert first_catch(run, 3) == ""
    from kraft.raft.voter_history import VoterHistory

    plant(monkeypatch, VoterHistory, "truncate", lambda self, end_offset: None)
    assert first_catch(run, 3) in ("R16", "invariant")


# leadership and time


def test_checks_catch_a_leader_without_check_quorum(monkeypatch: pytest.MonkeyPatch) -> None:
    original = timers.tick_leader

    def twin(core: Core, role: Leader) -> None:
        role.check_quorum_deadline_ms = NEVER
        original(core, role)

    plant(monkeypatch, leader, "tick_leader", twin, timers)

    def run(seed: int) -> None:
        world = settled(seed, 3)
        old = world.leader
        assert old is not None
        world.partition((old.node_id,), tuple(n for n in world.nodes if n != old.node_id))
        world.run(12_000)

    assert first_catch(run, 3) == "R18"


def test_checks_catch_pre_votes_granted_regardless_of_leader_contact(monkeypatch: pytest.MonkeyPatch) -> None:
    """One follower cannot reach the leader, while the others can: no epoch may rise."""

    def run(seed: int) -> None:
        world = settled(seed, 3)
        world.odds.latency = (1, 1)
        old = world.leader
        assert old is not None
        assert old.raft is not None
        epoch = old.raft.epoch
        other = next(n for n in world.voters.ids if n != old.node_id)
        world.cut = {(other, old.node_id), (old.node_id, other)}
        # Stop the writes, so that the logs are equal and only leader_contact prevents a pre-vote.
        world.stop_appends()
        world.run(12_000)
        if any(node.raft is not None and node.raft.epoch > epoch for node in world.nodes.values()):
            raise Violation("K4", f"an epoch rose above {epoch}")

    assert first_catch(run, 3) == ""

    def twin(core: Core) -> bool:
        return not isinstance(core.role, Leader)

    plant(monkeypatch, ballots, "grants_pre_vote", twin)
    assert first_catch(run, 3) == "K4"


def speed(seed: int) -> None:
    world = settled(seed, 3)
    old = world.leader
    assert old is not None
    assert old.raft is not None
    epoch = old.raft.epoch
    world.kill(old.node_id)
    if not world.run_until(lambda: replaced(world, epoch), SPEED_MS + 12):
        raise Violation("K6", f"seed {seed}: no new leader in {SPEED_MS} ms")


def no_contact(core: Core, role: Follower) -> None:
    """Disable leader_contact: it is never LOST."""


def grants_as_kafka(core: Core) -> bool:
    role = core.role
    return not isinstance(role, Leader) and not (isinstance(role, Follower) and role.has_fetched)


def test_checks_catch_elections_that_wait_for_the_fetch_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_catch(speed, 10) == ""
    plant(monkeypatch, follower, "lose_contact", no_contact, ballots)
    assert first_catch(speed, 10) == "K6"


def test_checks_catch_a_follower_that_grants_no_pre_vote_after_losing_contact(monkeypatch: pytest.MonkeyPatch) -> None:
    """A direct pre-vote request shows this bug; the duration of an election does not. The follower soon starts a round
    itself, and then grants the pre-vote."""
    assert pre_vote_of_a_follower(has_fetched=True, is_lost=True)
    plant(monkeypatch, ballots, "grants_pre_vote", grants_as_kafka)
    assert not pre_vote_of_a_follower(has_fetched=True, is_lost=True)


def lone_survivor(seed: int) -> None:
    """Run a quorum in which only one node has a log that can win, and at first no other voter is up to vote for it."""
    world = settled(seed, 3)
    old = world.leader
    assert old is not None
    assert old.raft is not None
    epoch = old.raft.epoch
    behind = next(n for n in world.voters.ids if n != old.node_id)
    world.kill(behind)
    world.run(300)
    world.kill(old.node_id)
    world.at(200, world.start, behind)
    if not world.run_until(lambda: replaced(world, epoch), 200 + SPEED_MS):
        raise Violation("K6", f"seed {seed}: no new leader")


def test_checks_catch_a_prospective_that_does_not_retry_a_lost_pre_vote_round_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert first_catch(lone_survivor, 20) == ""
    plant(monkeypatch, Core, "next_fast_round", Core.election_timeout)
    assert first_catch(lone_survivor, 20) == "K6"


def test_checks_catch_a_losing_candidate_that_waits_for_its_election_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both followers start a pre-vote round at the same moment, so that votes split."""
    monkeypatch.setattr(Core, "first_fast_round", lambda core: core.now_ms + 1)
    assert first_catch(speed, 20) == ""
    plant(monkeypatch, Core, "next_candidacy", lambda core: NEVER)
    assert first_catch(speed, 20) == "K6"


def test_checks_catch_a_follower_that_does_not_redial_its_leader_on_a_pre_vote_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A follower whose connection ended during its backoff must redial at once when it gets a pre-vote request."""

    def run(seed: int) -> None:
        world = settled(seed, 3)
        old = world.leader
        assert old is not None
        others = [world.nodes[n] for n in world.voters.ids if n != old.node_id]
        sleeper = others[0]
        assert sleeper.raft is not None
        core = sleeper.raft._core
        world.run_until(lambda: core.fetch.request_id is None, 500)
        core.fetch.not_before_ms = world.now + 5000
        assert isinstance(core.role, Follower)
        epoch = core.epoch
        world.kill(old.node_id)
        if not world.run_until(lambda: replaced(world, epoch), SPEED_MS):
            raise Violation("K6", "no new leader")

    assert first_catch(run, 10) == ""
    plant(monkeypatch, ballots, "redial_leader", lambda core: None)
    monkeypatch.setattr(follower, "redial_leader", lambda core: None)
    assert first_catch(run, 10) == "K6"


def test_checks_catch_a_restarted_voter_that_waits_for_an_election_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int) -> None:
        world = CoreWorld(seed, 3)
        world.start()
        if not world.run_until(world.has_active_leader, SPEED_MS):
            raise Violation("K6", "a slow start")

    assert first_catch(run, 20) == ""
    plant(monkeypatch, Core, "first_fast_round", Core.election_timeout)
    assert first_catch(run, 20) == "K6"
