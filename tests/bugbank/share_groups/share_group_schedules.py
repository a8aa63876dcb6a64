"""Schedules for share groups: the state machines of a leader and a share coordinator (`share_trial`), share sessions,
and runs of the simulator whose only clients are share consumers and what is written for them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from kraft.broker.api.share_fetch.share_sessions import FINAL_EPOCH, ShareMember, ShareSessionCache
from kraft.broker.share_partition.states import StateBatch
from kraft.sim.check.base import Checks
from kraft.sim.check.share_groups.persistence import share_checks
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.cluster.share_observer import spy_sessions
from kraft.sim.nemesis.drawn_share_group import draw_share_faults, draw_share_group
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import (
    CUT,
    DELETE_SHARE_OFFSETS,
    OVERRIDES,
    SET_SHARE_OFFSETS,
    SHARE_GROUP,
    START_MEMBER,
    Fault,
    Plan,
    PlannedOperation,
)
from kraft.sim.nemesis.swarm import SHARE_GROUP_SETTINGS, draw_plan
from kraft.sim.run.run import run_plan
from kraft.sim.workload.share_group import AT_ONCE, CHANGED_MS_MAX, MOMENTS, WHEN_CUT_OFF, WHEN_LEFT
from kraft.sim.world.chance import NamedRandom
from tests.bugbank.campaign import slow
from tests.bugbank.share_groups.share_trial import LIMITS, REJECT, RELEASE, STEPS, ShareTrial

DURATION_MS = 12_000
LANE = 92
"""A lane that no drawn fault has."""
SESSION_STEPS = 60
CHANGED_AT_MS = 3_000
"""When an administrator changes the offsets of a share group in a run."""


def trials(seed: int) -> list[str]:
    """Let members acquire, acknowledge and leave, while locks expire, leaders and coordinators move, and writes are not
    confirmed."""
    trial = ShareTrial(seed)
    for _ in range(STEPS):
        trial.disturb()
    trial.settle()
    return trial.found


@slow
def share_groups(seed: int) -> list[str]:
    """Run the drawn cluster and the drawn faults of a seed, with the share groups only."""
    plan = draw_plan(seed, FaultSettings(duration_ms=DURATION_MS))
    aimed = draw_share_faults(NamedRandom(seed, "faults of share groups"), DURATION_MS, LANE)
    work = {SHARE_GROUP: draw_share_group(NamedRandom(seed, SHARE_GROUP), DURATION_MS)}
    shape = replace(plan.shape, overrides={**plan.shape.overrides, **SHARE_GROUP_SETTINGS})
    return found_in(replace(plan, shape=shape, work=work, faults=(*plan.faults, *aimed)))


def found_in(plan: Plan) -> list[str]:
    findings = run_plan(plan).findings
    return [finding.check for finding in sorted(findings, key=lambda finding: finding.at_ms)]


# one leader and one share coordinator


def _given(count: int = 6) -> ShareTrial:
    """Return a trial in which member a holds the first records."""
    trial = ShareTrial()
    trial.append(count)
    trial.leader.acquire("a", count)
    return trial


def _released() -> ShareTrial:
    """Return a trial in which records were delivered once, and are available."""
    trial = _given()
    trial.leader.acknowledge("a", 0, 1, 2, kind=RELEASE)
    return trial


def an_acknowledgement_before_its_commit(seed: int) -> list[str]:
    """Let the log of the share coordinator accept an acknowledgement, and not commit it."""
    trial = _given()
    trial.coordinator.commits = False
    trial.leader.acknowledge("a", 0, 1)
    return trial.found


def a_leader_that_was_replaced_writes(seed: int) -> list[str]:
    """Let a leader that was replaced persist an acknowledgement."""
    trial = _given()
    trial.move_leader()
    assert trial.former is not None
    trial.former.acknowledge("a", 0, 1)
    return trial.found


def a_leader_dies_after_a_delivery(seed: int) -> list[str]:
    """Let another leader deliver records that were released before."""
    trial = _released()
    trial.move_leader()
    trial.leader.acquire("b", 2)
    return trial.found


def released_records_in_a_snapshot(seed: int) -> list[str]:
    """Let the share coordinator write a snapshot of records that were released."""
    trial = _released()
    for offset in range(3, 6):
        trial.leader.acknowledge("a", offset, kind=REJECT)
    return trial.found


def one_of_two_locks_expires(seed: int) -> list[str]:
    """Let the lock of one member expire before that of another, who got its records later."""
    trial = ShareTrial()
    trial.append(4)
    trial.leader.acquire("a", 2)
    trial.now_ms += LIMITS.lock_duration_ms // 2
    trial.leader.acquire("b", 2)
    trial.now_ms += LIMITS.lock_duration_ms // 2
    trial.leader.expire()
    trial.leader.acquire("c", 4)
    return trial.found


def the_last_record_is_accepted_first(seed: int) -> list[str]:
    """Accept a record while those before it are held."""
    trial = _given()
    trial.leader.acknowledge("a", 4, 5)
    return trial.found


def records_are_released(seed: int) -> list[str]:
    return _released().found


def a_session_ends(seed: int) -> list[str]:
    """End the session of a member that holds records, and deliver them to another member."""
    trial = _given()
    trial.leader.end_session("a")
    trial.leader.acquire("b", 6)
    return trial.found


def an_aborted_transaction(seed: int) -> list[str]:
    trial = ShareTrial()
    trial.append(2)
    trial.append(2, outcome="abort")
    trial.append(2, outcome="commit")
    trial.leader.acquire("a", 9)
    return trial.found


def a_late_release(seed: int) -> list[str]:
    """Let a release of the first delivery arrive at the share coordinator after the second delivery is accepted."""
    trial = _released()
    trial.leader.acquire("b", 6)
    trial.leader.acknowledge("b", 1, 2)
    trial.leader.acknowledge("b", 0, kind=RELEASE)
    trial.coordinator.write(0, StateBatch(1, 2, 0, 1), leader_epoch=trial.leader.leader.leader_epoch)
    trial.move_leader()
    trial.leader.acquire("c", 6)
    return trial.found


def _accepted() -> ShareTrial:
    """Return a trial in which the first records are accepted, and those after them are held."""
    trial = _given()
    trial.leader.acknowledge("a", 0, 1, 2)
    return trial


def a_start_offset_is_set_back(seed: int) -> list[str]:
    """Set the start offset back, and deliver records that were accepted before."""
    trial = _accepted()
    trial.leader.acknowledge("a", 4)
    trial.reset(1)
    trial.move_leader()
    trial.leader.acquire("b", 6)
    return trial.found


def a_leader_writes_after_a_start_offset_was_set(seed: int) -> list[str]:
    """Let a leader that does not know of the new start offset persist an acknowledgement."""
    trial = _accepted()
    trial.reset(0)
    trial.leader.acknowledge("a", 3)
    return trial.found


def a_leader_writes_after_its_group_was_deleted(seed: int) -> list[str]:
    """Let a leader that does not know of the deletion persist an acknowledgement when there is a new group."""
    trial = _accepted()
    trial.begin_again()
    trial.leader.acknowledge("a", 3)
    return trial.found


def a_record_behind_held_ones_is_rejected(seed: int) -> list[str]:
    trial = _given()
    trial.leader.acknowledge("a", 4, kind=REJECT)
    return trial.found


def records_before_and_behind_held_ones_are_accepted(seed: int) -> list[str]:
    """Accept records so that one write moves the start offset, and leaves a complete record behind it."""
    trial = _given()
    trial.leader.acknowledge("a", 0, 1, 4)
    return trial.found


def rejected_records_in_a_snapshot(seed: int) -> list[str]:
    """Let the share coordinator write a snapshot while records behind the start offset are archived."""
    trial = _given()
    for offset in range(1, 6):
        trial.leader.acknowledge("a", offset, kind=REJECT)
    trial.move_leader()
    return trial.found


# sessions


def sessions(seed: int) -> list[str]:
    """Send the requests of some members, of which some are sent again, and some have a wrong epoch."""
    random, checks = Random(seed), Checks(share_checks())
    cache = ShareSessionCache(10)
    spy_sessions(cache, 1, 1, lambda step: checks.observe(step, 0))
    epochs: dict[str, int] = {}
    for _ in range(SESSION_STEPS):
        name = random.choice(("a", "b"))
        member, chosen = ShareMember("billing", name), random.randrange(8)
        if chosen == 0:
            cache.open(member, 1)
            epochs[name] = 1
        elif chosen == 1:
            cache.resume(member, FINAL_EPOCH)
            cache.close(member)
        elif chosen == 2:
            cache.resume(member, max(1, epochs.get(name, 1) - 1 + 2 * random.randrange(2)))
        elif name in epochs:
            cache.resume(member, epochs[name])
            epochs[name] += 1
    return [finding.check for finding in checks.findings]


def a_request_is_sent_again(seed: int) -> list[str]:
    """Deliver a second copy of a request of a share session."""
    checks, cache, member = Checks(share_checks()), ShareSessionCache(10), ShareMember("billing", "a")
    spy_sessions(cache, 1, 1, lambda step: checks.observe(step, 0))
    cache.open(member, 1)
    for epoch in (1, 2, 2):
        cache.resume(member, epoch)
    return [finding.check for finding in checks.findings]


# runs


@slow
def two_members_read(seed: int) -> list[str]:
    """Let two members of a share group read, without faults."""
    shape = ClusterShape(controllers=1, overrides={**OVERRIDES, **SHARE_GROUP_SETTINGS})
    work = {SHARE_GROUP: tuple(PlannedOperation(0, START_MEMBER, member) for member in (0, 1))}
    return found_in(Plan(seed=seed, duration_ms=2_000, shape=shape, work=work))


def _changed_offsets(
    when: str, duration_ms: int, verb: str = SET_SHARE_OFFSETS, faults: tuple[Fault, ...] = ()
) -> list[str]:
    """Let two members of a share group read, and an administrator change the group's offsets: by default, set them to
    the first records."""
    shape = ClusterShape(controllers=1, overrides={**OVERRIDES, **SHARE_GROUP_SETTINGS})
    members = (PlannedOperation(0, START_MEMBER, member) for member in (0, 1))
    work = {SHARE_GROUP: (*members, PlannedOperation(CHANGED_AT_MS, verb, 0, MOMENTS.index(when)))}
    return found_in(Plan(seed=1, duration_ms=duration_ms, shape=shape, work=work, faults=faults))


def _deleted_offsets(cut_ms: int) -> list[str]:
    """Delete the offsets of a share group while nothing passes between its coordinator and the share coordinator, which
    are brokers 2 and 3 in this run."""
    cut = Fault(at_ms=CHANGED_AT_MS - 100, kind=CUT, node=2, other=3, duration_ms=cut_ms)
    return _changed_offsets(WHEN_LEFT, CHANGED_AT_MS + cut_ms + DURATION_MS, DELETE_SHARE_OFFSETS, (cut,))


@slow
def an_administrator_does_not_wait_for_members(seed: int) -> list[str]:
    """Change the offsets of a share group that has members."""
    return _changed_offsets(AT_ONCE, 5_000)


@slow
def an_administrator_waits_for_a_member_that_is_cut_off(seed: int) -> list[str]:
    """Change the offsets of a share group when its last member is expired, but has a session with the leader."""
    return _changed_offsets(WHEN_CUT_OFF, DURATION_MS)


@slow
def a_deletion_arrives_when_members_have_joined(seed: int) -> list[str]:
    """Delay the deletion of a group's offsets until its members have started again."""
    return _deleted_offsets(CHANGED_MS_MAX + 8_000)
