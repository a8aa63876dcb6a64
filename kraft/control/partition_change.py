"""The one builder of partition changes, for every cause: ISR changes, fencing, elections, reassignment.

Source: kraft-spec B.5, KIP-841, KIP-966. Invariants: the leader is in the ISR or there is none (M5); ISR and ELR are
disjoint and with the last known ELR never all empty (M4); the ELR holds only replicas that have every record below the
high watermark, which stands still while the ISR is below min.insync.replicas (K7); an unclean election happens only
where the caller allows it; nothing is emitted if nothing changes.
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
"""(broker id, its directory for this replica) -> active, and the directory is online."""


class Election(Enum):
    """PREFERRED: move to the first replica if possible. ONLINE: keep the leader if possible. UNCLEAN: as ONLINE, and
    take any eligible replica before having none."""

    PREFERRED = "preferred"
    ONLINE = "online"
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eligibility:
    """Who may lead. Among ISR members that may, those for which `is_connected` holds come first. `last_known` allows
    that, with ISR and ELR empty, the last known leader is taken back (an unclean election by KIP-966's balanced rule).
    """

    may_lead: MayLead
    is_connected: Callable[[int], bool] = lambda _broker_id: True
    last_known: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a cause wants of a partition; None leaves a part as it is."""

    isr: Replicas | None = None
    replicas: Replicas | None = None
    removing: Replicas | None = None
    adding: Replicas | None = None
    recovery_state: RecoveryState | None = None
    directories: tuple[UUID, ...] | None = None
    unclean_restarted: frozenset[int] = frozenset()
    """Brokers that came back without a clean shutdown: they leave the ELR."""


class _Elected(NamedTuple):
    leader: int
    unclean: bool


NO_TARGET = Target()


def change_partition(
    topic_id: UUID,
    partition_id: int,
    state: PartitionState,
    *,
    election: Election,
    eligibility: Eligibility,
    min_insync_replicas: int,
    target: Target = NO_TARGET,
) -> PartitionChange | None:
    """The change that brings the partition to the target with a leader chosen by `election`; None if it is there."""
    new = state._replace(
        isr=state.isr if target.isr is None else target.isr,
        replicas=state.replicas if target.replicas is None else target.replicas,
        removing=state.removing if target.removing is None else target.removing,
        adding=state.adding if target.adding is None else target.adding,
        directories=state.directories if target.directories is None else target.directories,
        leader_recovery_state=(state.leader_recovery_state if target.recovery_state is None else target.recovery_state),
    )
    new = _complete_reassignment(new)
    new = _with_elr(state, new, min_insync_replicas, target.unclean_restarted)
    elected = _elect(new, election, eligibility)
    new = _with_leader(new, elected, min_insync_replicas)
    new = _with_last_known(state, new)
    dropped = set(state.replicas) - set(new.replicas)
    return _difference(topic_id, partition_id, state, new, rewrite_leader=bool(dropped))


def _complete_reassignment(new: PartitionState) -> PartitionState:
    """Drop the removing replicas once what remains of the ISR covers all that shall remain."""
    if not new.is_reassigning:
        return new
    isr = tuple(replica for replica in new.isr if replica not in new.removing)
    replicas = tuple(replica for replica in new.replicas if replica not in new.removing)
    if not isr or not replicas or not set(isr) >= set(replicas):
        return new
    directories = new.directories
    if directories:
        directories = tuple(
            directory
            for replica, directory in zip(new.replicas, directories, strict=True)
            if replica not in new.removing
        )
    return new._replace(isr=isr, replicas=replicas, removing=(), adding=(), directories=directories)


def _with_elr(
    old: PartitionState, new: PartitionState, min_insync_replicas: int, unclean_restarted: frozenset[int]
) -> PartitionState:
    """Replicas that left an ISR that is now too small are still eligible, until they restart uncleanly."""
    if len(new.isr) >= min(min_insync_replicas, len(new.replicas)):
        return new._replace(elr=(), last_known_elr=())
    candidates = (*old.elr, *(replica for replica in old.isr if replica not in old.elr))
    elr = tuple(
        replica
        for replica in candidates
        if replica not in new.isr and replica not in unclean_restarted and replica in new.replicas
    )
    return new._replace(elr=elr)


def _elect(new: PartitionState, election: Election, eligibility: Eligibility) -> _Elected:
    def may_lead(replica: int) -> bool:
        return eligibility.may_lead(replica, new.directory_of(replica))

    def is_valid(replica: int) -> bool:
        in_sync = replica in new.isr or (not new.isr and replica in new.elr)
        return in_sync and may_lead(replica)

    if election is Election.PREFERRED and is_valid(new.replicas[0]):
        return _Elected(new.replicas[0], unclean=False)
    if new.leader != NO_LEADER and is_valid(new.leader):
        return _Elected(new.leader, unclean=False)
    valid = [replica for replica in new.replicas if is_valid(replica)]
    if valid:
        connected = (replica for replica in valid if eligibility.is_connected(replica))
        return _Elected(next(connected, valid[0]), unclean=False)
    if eligibility.last_known and not new.isr and not new.elr and len(new.last_known_elr) == 1:
        last = new.last_known_elr[0]
        if last in new.replicas and may_lead(last):
            return _Elected(last, unclean=True)
    if election is Election.UNCLEAN:
        online = [replica for replica in new.replicas if may_lead(replica)]
        if online:
            connected = (replica for replica in online if eligibility.is_connected(replica))
            return _Elected(next(connected, online[0]), unclean=True)
    return _Elected(NO_LEADER, unclean=False)


def _with_leader(new: PartitionState, elected: _Elected, min_insync_replicas: int) -> PartitionState:
    leader = elected.leader
    if leader == NO_LEADER:
        return new._replace(leader=leader)
    if elected.unclean:
        # What the ELR members have may differ from the new leader's log from here on.
        return new._replace(
            leader=leader,
            isr=(leader,),
            elr=(),
            last_known_elr=(),
            leader_recovery_state=RecoveryState.RECOVERING,
        )
    if leader not in new.isr:
        # Elected from the ELR. If that alone is enough for the high watermark to move, the others are no longer safe.
        is_enough = min(min_insync_replicas, len(new.replicas)) <= 1
        elr = () if is_enough else tuple(replica for replica in new.elr if replica != leader)
        new = new._replace(isr=(leader,), elr=elr)
    return new._replace(leader=leader, last_known_elr=())


def _with_last_known(old: PartitionState, new: PartitionState) -> PartitionState:
    """Remember who led when the ISR became empty, and never let ISR, ELR and last known ELR all be empty."""
    if new.isr:
        return new
    if old.isr and old.leader != NO_LEADER:
        return new._replace(last_known_elr=(old.leader,))
    if new.last_known_elr or new.elr:
        return new
    return new._replace(last_known_elr=(old.last_known_elr or old.elr or old.isr or new.replicas)[:1])


def _difference(
    topic_id: UUID, partition_id: int, old: PartitionState, new: PartitionState, *, rewrite_leader: bool
) -> PartitionChange | None:
    set_leader = new.leader != old.leader or rewrite_leader
    if new == old and not set_leader:
        return None
    recovery_changed = new.leader_recovery_state != old.leader_recovery_state
    return PartitionChange(
        topic_id,
        partition_id,
        isr=None if new.isr == old.isr else new.isr,
        leader=new.leader if set_leader else UNCHANGED_LEADER,
        replicas=None if new.replicas == old.replicas else new.replicas,
        removing=None if new.removing == old.removing else new.removing,
        adding=None if new.adding == old.adding else new.adding,
        leader_recovery_state=int(new.leader_recovery_state) if recovery_changed else UNCHANGED_RECOVERY_STATE,
        directories=None if new.directories == old.directories else new.directories,
        elr=None if new.elr == old.elr else new.elr,
        last_known_elr=None if new.last_known_elr == old.last_known_elr else new.last_known_elr,
    )
