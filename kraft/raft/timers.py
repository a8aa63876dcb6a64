"""Deadlines: the earliest one of a replica, and the actions that fall due at a tick."""

from __future__ import annotations

from kraft.raft.campaign import end_round, start_round
from kraft.raft.core import Core
from kraft.raft.follower import next_fetch_ms
from kraft.raft.leader import leader_deadline, tick_leader
from kraft.raft.state import NEVER, Candidate, Follower, Leader, Prospective, Resigned, Unattached
from kraft.raft.transitions import to_unattached


def next_deadline(core: Core) -> int:
    """Return when the next Tick is needed, on the clock of the steps; NEVER if nothing is due until another input
    arrives."""
    role = core.role
    deadline = next_fetch_ms(core)
    if core.is_stopping:
        deadline = min(deadline, core.stop_by_ms) if core.now_ms < core.stop_by_ms else deadline
        return min(deadline, leader_deadline(core, role)) if isinstance(role, Leader) else deadline
    if isinstance(role, Leader):
        return min(deadline, leader_deadline(core, role))
    if isinstance(role, Follower):
        return min(deadline, role.fetch_deadline_ms, role.campaign_at_ms) if core.is_voter else deadline
    if isinstance(role, Candidate):
        return min(deadline, role.election_deadline_ms, role.retry_at_ms)
    return min(deadline, role.election_deadline_ms)


def tick(core: Core) -> None:
    """Carry out everything that is due by now."""
    role, now = core.role, core.now_ms
    if isinstance(role, Leader):
        tick_leader(core, role)
    elif core.is_stopping:
        return
    elif isinstance(role, Resigned):
        if now >= role.election_deadline_ms and core.alert_if_last_epoch():
            role.election_deadline_ms = core.election_timeout()
        elif now >= role.election_deadline_ms:
            to_unattached(core, core.epoch + 1)
            tick(core)
    elif not core.is_voter:
        return
    elif isinstance(role, Unattached):
        if now >= role.election_deadline_ms:
            start_round(core)
    elif isinstance(role, Follower):
        if now >= min(role.fetch_deadline_ms, role.campaign_at_ms):
            role.campaign_at_ms = NEVER
            start_round(core)
    elif isinstance(role, Prospective):
        if now >= role.election_deadline_ms:
            end_round(core, role)
    elif now >= min(role.election_deadline_ms, role.retry_at_ms):
        start_round(core)
