"""The one builder of partition changes, for every cause: ISR changes, fencing, elections, reassignment.

Invariants: the leader is in the ISR, or there is none (M5). ISR and ELR are disjoint; ISR, ELR and last known ELR are
never all empty (M4). The ELR holds only replicas that have every record below the high watermark, which does not move
while the ISR is below min.insync.replicas (K7). An unclean election happens only where the caller allows it. Nothing is
emitted if nothing changes.
Source: KIP-841, KIP-966, Kafka's PartitionChangeBuilder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from kraft.image import PartitionState, RecoveryState
from kraft.image.events import UNCHANGED_LEADER, UNCHANGED_RECOVERY_STATE, PartitionChange
from kraft.image.partitions import NO_LEADER, Replicas

MayLead = Callable[[int, UUID | None], bool]
"""Function (broker id, its directory for this replica) -> whether the broker is active and the directory is online."""


class Election(Enum):
    """How a partition's leader is elected. PREFERRED: move to the first replica if possible. ONLINE: keep the leader if
    possible. UNCLEAN: as ONLINE, but take the last known leader, or else any replica that may lead, before having no
    leader."""

    PREFERRED = "preferred"
    ONLINE = "online"
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eligibility:
    """The replicas that may lead a partition. Of the ISR members that may lead, those with `is_connected` come
    first."""

    may_lead: MayLead
    is_connected: Callable[[int], bool] = lambda _broker_id: True


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTarget:
    """The changes that a cause requests for a partition. A field that is None stays unchanged."""

    isr: Replicas | None = None
    replicas: Replicas | None = None
    removing: Replicas | None = None
    adding: Replicas | None = None
    recovery_state: RecoveryState | None = None
    directories: tuple[UUID, ...] | None = None
    unclean_restarted: frozenset[int] = frozenset()
    """Brokers that came back without a clean shutdown, and therefore leave the ELR."""
    furthest: int = NO_LEADER
    """The replica whose log reaches furthest. With ISR and ELR empty it may become leader, which is an unclean
    election."""


class _Elected(NamedTuple):
    leader: int
    unclean: bool


@dataclass(slots=True)
class _Draft:
    """The fields of a partition while a change of it is computed."""

    isr: Replicas
    replicas: Replicas
    removing: Replicas
    adding: Replicas
    directories: tuple[UUID, ...]
    recovery_state: RecoveryState
    leader: int
    elr: Replicas
    last_known_elr: Replicas

    def directory_of(self, replica: int) -> UUID | None:
        return self.directories[self.replicas.index(replica)] if self.directories else None


NO_TARGET = PartitionTarget()


def change_partition(
    topic_id: UUID,
    partition_id: int,
    state: PartitionState,
    *,
    election: Election,
    eligibility: Eligibility,
    min_insync_replicas: int,
    target: PartitionTarget = NO_TARGET,
) -> PartitionChange | None:
    """Return the change that brings the partition to the target with a leader chosen by `election`; None if nothing
    changes."""
    draft = _Draft(
        state.isr if target.isr is None else target.isr,
        state.replicas if target.replicas is None else target.replicas,
        state.removing if target.removing is None else target.removing,
        state.adding if target.adding is None else target.adding,
        state.directories if target.directories is None else target.directories,
        state.leader_recovery_state if target.recovery_state is None else target.recovery_state,
        state.leader,
        state.elr,
        state.last_known_elr,
    )
    if draft.removing or draft.adding:
        _complete_reassignment(draft)
    enough = min(min_insync_replicas, len(draft.replicas))
    _keep_eligible(state, draft, enough, target.unclean_restarted)
    if len(draft.replicas) < len(state.replicas):
        draft.last_known_elr = tuple(replica for replica in draft.last_known_elr if replica in draft.replicas)
    _lead(draft, _elect(draft, election, eligibility, target.furthest), enough)
    if not draft.isr:
        _remember_last_leader(state, draft)
    return _difference(topic_id, partition_id, state, draft)


def change_key(state: PartitionState) -> object:
    """Return a cache key: the same cause changes two partitions of one image in the same way if their keys are equal. A
    key is valid only while that image is held, because it contains the identity of the shared directories."""
    return (
        state.replicas,
        state.isr,
        state.leader,
        state.elr,
        state.last_known_elr,
        state.removing,
        state.adding,
        state.leader_recovery_state,
        id(state.directories),
    )


def for_partition(change: PartitionChange | None, topic_id: UUID, partition_id: int) -> PartitionChange | None:
    """Return the same change for another partition."""
    if change is None:
        return None
    return PartitionChange(
        topic_id,
        partition_id,
        change.isr,
        change.leader,
        change.replicas,
        change.removing,
        change.adding,
        change.leader_recovery_state,
        change.directories,
        change.elr,
        change.last_known_elr,
    )


def _complete_reassignment(draft: _Draft) -> None:
    """Drop the removing replicas once the remaining ISR covers all replicas of the target."""
    isr = tuple(replica for replica in draft.isr if replica not in draft.removing)
    replicas = tuple(replica for replica in draft.replicas if replica not in draft.removing)
    if not isr or not replicas or not set(isr) >= set(replicas):
        return
    if draft.directories:
        placed = zip(draft.replicas, draft.directories, strict=True)
        draft.directories = tuple(directory for replica, directory in placed if replica not in draft.removing)
    draft.isr, draft.replicas, draft.removing, draft.adding = isr, replicas, (), ()


def _keep_eligible(old: PartitionState, draft: _Draft, enough: int, unclean_restarted: frozenset[int]) -> None:
    """While the ISR is below min.insync.replicas, put each replica that leaves it into the ELR, until the replica
    restarts uncleanly."""
    if len(draft.isr) >= enough:
        draft.elr = draft.last_known_elr = ()
        return
    candidates = (*old.elr, *(replica for replica in old.isr if replica not in old.elr))
    draft.elr = tuple(
        replica
        for replica in candidates
        if replica not in draft.isr and replica not in unclean_restarted and replica in draft.replicas
    )


def _elect(draft: _Draft, election: Election, eligibility: Eligibility, furthest: int) -> _Elected:
    def may_lead(replica: int) -> bool:
        return eligibility.may_lead(replica, draft.directory_of(replica))

    in_sync = draft.isr or draft.elr
    preferred = draft.replicas[0]
    if election is Election.PREFERRED and preferred in in_sync and may_lead(preferred):
        return _Elected(preferred, unclean=False)
    if draft.leader in in_sync and draft.leader in draft.replicas and may_lead(draft.leader):
        return _Elected(draft.leader, unclean=False)
    valid = [replica for replica in draft.replicas if replica in in_sync and may_lead(replica)]
    if valid:
        connected = (replica for replica in valid if eligibility.is_connected(replica))
        return _Elected(next(connected, valid[0]), unclean=False)
    if not in_sync and furthest in draft.replicas and may_lead(furthest):
        return _Elected(furthest, unclean=True)
    if election is Election.UNCLEAN:
        last = draft.last_known_elr[0] if len(draft.last_known_elr) == 1 and not in_sync else NO_LEADER
        if last in draft.replicas and may_lead(last):
            return _Elected(last, unclean=True)
        online = [replica for replica in draft.replicas if may_lead(replica)]
        if online:
            connected = (replica for replica in online if eligibility.is_connected(replica))
            return _Elected(next(connected, online[0]), unclean=True)
    return _Elected(NO_LEADER, unclean=False)


def _lead(draft: _Draft, elected: _Elected, enough: int) -> None:
    """Make the elected replica the leader."""
    leader = draft.leader = elected.leader
    if leader == NO_LEADER:
        return
    draft.last_known_elr = ()
    if elected.unclean:
        # From here on the logs of the ELR members may differ from the new leader's log.
        draft.isr, draft.elr, draft.recovery_state = (leader,), (), RecoveryState.RECOVERING
    elif leader not in draft.isr:
        # The leader comes from the ELR. If it alone suffices for the high watermark to move, the other ELR members are
        # no longer safe.
        draft.isr = (leader,)
        draft.elr = () if enough <= 1 else tuple(replica for replica in draft.elr if replica != leader)


def _remember_last_leader(old: PartitionState, draft: _Draft) -> None:
    """Remember the last leader when the ISR becomes empty, and never let ISR, ELR and last known ELR all be empty."""
    if old.isr and old.leader in draft.replicas:
        draft.last_known_elr = (old.leader,)
    elif not draft.last_known_elr and not draft.elr:
        candidates = (*old.last_known_elr, *old.elr, *old.isr, *draft.replicas)
        draft.last_known_elr = tuple(replica for replica in candidates if replica in draft.replicas)[:1]


def _difference(topic_id: UUID, partition_id: int, old: PartitionState, new: _Draft) -> PartitionChange | None:
    """Return only the changed fields. The leader is repeated when a replica is dropped, so that its epoch rises."""
    is_dropping = new.replicas != old.replicas and not set(old.replicas) <= set(new.replicas)
    change = PartitionChange(
        topic_id,
        partition_id,
        None if new.isr == old.isr else new.isr,
        new.leader if new.leader != old.leader or is_dropping else UNCHANGED_LEADER,
        None if new.replicas == old.replicas else new.replicas,
        None if new.removing == old.removing else new.removing,
        None if new.adding == old.adding else new.adding,
        UNCHANGED_RECOVERY_STATE if new.recovery_state == old.leader_recovery_state else int(new.recovery_state),
        None if new.directories == old.directories else new.directories,
        None if new.elr == old.elr else new.elr,
        None if new.last_known_elr == old.last_known_elr else new.last_known_elr,
    )
    return None if change == PartitionChange(topic_id, partition_id) else change
