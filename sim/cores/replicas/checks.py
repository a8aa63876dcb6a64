"""Invariants of the replicas of one partition, checked after every event against a separate record of what was written
and committed (`Ledger`), which no node reads.

Checked are D1 to D9, D11, D16, D18, K7 and M9. What the metadata quorum decides and commits is checked too: M3, M5 to
M8 and M16 (M3, M5, M6 and M7 by the same checks of `kraft.sim.check`).

A check reads and never changes anything. It raises `Violation` with its name and the evidence. Where appends wait for
the disk (flush.messages=1) a replica must hold what it has synced, and no power loss excuses a missing record.
Elsewhere a replica need not hold what its own power loss removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn
from uuid import UUID

from kraft.broker.replica.isr import IsrProposal
from kraft.control import AlterPartition
from kraft.image import MetadataImage, PartitionState
from kraft.image.events import Event, RegisterBroker
from kraft.sim.check.base import Checks, Finding
from kraft.sim.check.observations import BrokerRegistered, PartitionRecorded, TopicPartition
from kraft.sim.check.partition_records import (
    BrokerEpochsRise,
    LeaderIsInIsr,
    OnlyActiveBrokersLead,
    PartitionEpochsRise,
)
from kraft.sim.check.partitions import PartitionLedgers
from kraft.sim.check.shadow import Shadows
from kraft.sim.cores.checks import Violation
from kraft.sim.cores.replicas.ledger import Committed, Ledger
from kraft.sim.cores.replicas.witness import ReplicaWitness

if TYPE_CHECKING:
    from kraft.sim.cores.replicas.broker import CoreBroker
    from kraft.sim.cores.replicas.leading import LeadingReplica
    from kraft.sim.cores.replicas.log import ReplicaBatch
    from kraft.sim.cores.replicas.world import ReplicaWorld

PARTITION: TopicPartition = ("t", 0)


class ReplicaChecks(ReplicaWitness):
    """Receives a callback for every event and checks the invariants."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        in_sync = LeaderIsInIsr(Shadows(), PartitionLedgers())  # needed when `may_take` is called
        self._recorded = Checks((PartitionEpochsRise(), in_sync, OnlyActiveBrokersLead(), BrokerEpochsRise()))
        for check in self._recorded.checks:
            check.when_found = _raise
        self._came_back_unclean: set[UUID] = set()
        """Ids of incarnations that followed an unclean stop."""
        self._given_up: dict[int, int] = {}
        """Leader epoch of an unclean election → end offset of the committed records that the election kept."""

    def require(self, name: str, condition: object, evidence: str) -> None:
        """Raise unless the condition is true. Meant for rare checks, because the caller builds the evidence
        in advance."""
        self.counts[name] += 1
        if not condition:
            raise Violation(name, evidence)

    # every step

    def after_step(self, broker: CoreBroker) -> None:
        """Check D5: the offsets of a log are in order."""
        log = broker.log
        mark, end = log.high_watermark, log.log_end_offset
        if end:
            self.counts["D5"] += 1
        if not log.log_start_offset <= mark <= end or log.synced > len(log.batches):
            raise Violation("D5", f"broker {broker.node_id}: {log.log_start_offset} <= {mark} <= {end} does not hold")

    # logs

    def on_append(self, broker: CoreBroker, batch: ReplicaBatch) -> None:
        """Check three rules for an append. D6: no gap, no older epoch. D8: one writer per epoch, one record per
        (offset, epoch). D7: the epoch cache has the epoch."""
        ledger, log, counts = self.ledger, broker.log, self.counts
        batches = log.batches
        end, epoch = log.log_start_offset, -1
        if len(batches) > 1:
            _, end, epoch, _ = batches[-2]
        counts["D6"] += 1
        if batch.base_offset != end or batch.epoch < epoch:
            raise Violation("D6", f"broker {broker.node_id} writes {batch} behind {epoch}, {end}")
        counts["D8"] += 1
        known = ledger.written.setdefault((batch.base_offset, batch.epoch), batch.chain)
        if known != batch.chain:
            raise Violation("D8", f"({batch.base_offset}, {batch.epoch}) names two records")
        if broker.leading is not None and ledger.leaders.get(batch.epoch) != broker.node_id:
            raise Violation("D8", f"{batch} by broker {broker.node_id} is not of its leader")
        if log.epochs.latest_epoch < batch.epoch:
            raise Violation("D7", f"broker {broker.node_id} does not know the epoch of {batch}")
        ledger.wrote(broker.node_id, batch)

    def on_truncate(self, broker: CoreBroker, offset: int, leader_epoch: int) -> None:
        """Check D9: no committed record is truncated. A log that is restarted may lose records that its leader has
        deleted. A replica that is in neither ISR nor ELR and has not received a later epoch yet may follow its old
        leader. It may then truncate records that were committed in the later epoch."""
        log, committed, state = broker.log, self.ledger.committed, broker.world.state
        is_behind = broker.node_id not in (*state.isr, *state.elr)
        for batch in log.batches[log.position(offset) :]:
            known = committed.get(batch.next_offset)
            self.counts["D9"] += 1
            if known is None or known.chain != batch.chain:
                continue
            if not (is_behind and known.epoch > leader_epoch):
                raise Violation("D9", f"broker {broker.node_id} cuts to {offset} and loses the committed {batch}")

    def on_cut(self, broker: CoreBroker) -> None:
        """Check D7: after a truncation the epoch cache matches the remaining log, and has no entry beyond the log's
        end."""
        self._check_epochs(broker, [])

    def _check_epochs(self, broker: CoreBroker, begun: list[tuple[int, int]]) -> None:
        """Check that the epoch cache equals a scan of the log, plus a later epoch that a leader has `begun`."""
        known, scanned = broker.log.epochs.entries, broker.log.scanned_epochs()
        evidence = f"broker {broker.node_id}: the cache says {known}, the log {scanned}"
        self.require("D7", known == (*scanned, *begun), evidence)

    def on_trim(self, broker: CoreBroker, offset: int) -> None:
        """Check D16: only committed records may be deleted."""
        mark = broker.log.high_watermark
        self.require("D16", offset <= mark, f"broker {broker.node_id} deletes up to {offset}, beyond {mark}")

    def on_power_loss(self, broker: CoreBroker, lost: list[ReplicaBatch]) -> None:
        if not broker.world.odds.waits_for_disk:
            self.ledger.destroy(broker.node_id, lost)

    def on_start(self, broker: CoreBroker, *, is_clean: bool) -> None:
        if not is_clean:
            self._came_back_unclean.add(broker.incarnation_id)

    # leaders

    def on_lead(self, broker: CoreBroker, state: PartitionState) -> None:
        """Check a new leader. D8: one leader per epoch. D1: it holds all records that were committed before. D7: its
        epoch cache has the epochs of these records."""
        ledger, epoch = self.ledger, state.leader_epoch
        known = ledger.leaders.setdefault(epoch, broker.node_id)
        self.require("D8", known == broker.node_id, f"epoch {epoch} has leaders {known} and {broker.node_id}")
        self._check_epochs(broker, [(epoch, broker.log.log_end_offset)])
        newest = ledger.newest_before(epoch)
        if newest is None:
            return
        self.counts["D1"] += 1
        end, one = newest
        if not self._has(broker, end, one.chain):
            raise Violation(
                "D1", f"broker {broker.node_id} ends at {broker.log.log_end_offset} and leads without {end}"
            )

    def on_recovery(self, told: list[CoreBroker], leader: CoreBroker, epoch: int, waited_ms: int) -> None:
        """Check D1 for an unclean election: only such an election may make a replica leader that lacks committed
        records. These must be records that all replicas with a reported log have lost. The elected log must be the
        longest of the reported ones. The election must have waited for the other replicas, if there are any."""
        world, silent = leader.world, len(leader.world.brokers) - len(told)
        if len(world.brokers) > 1 and silent and waited_ms < world.settings.session_timeout_ms:
            raise Violation("D1", f"{leader.node_id} is taken after {waited_ms} ms, and {silent} have told nothing")
        given_up = {at: one for at, one in self.ledger.committed.items() if not self._has(leader, at, one.chain)}
        self._given_up.pop(epoch, None)  # decided before, by a controller that lost the decision
        self.counts["D1"] += 1
        for at, one in given_up.items():
            for broker in told:
                if self._has(broker, at, one.chain):
                    raise Violation("D1", f"{leader.node_id} is taken without {at}, which {broker.node_id} has")
        if given_up:
            self._given_up[epoch] = max((at for at in self.ledger.committed if at not in given_up), default=0)

    def _has(self, broker: CoreBroker, end: int, chain: int) -> bool:
        """Return whether the replica holds everything below `end`, in the history with this hash."""
        log = broker.log
        if log.log_start_offset >= end:
            return True
        if broker.world.odds.waits_for_disk and log.synced_end_offset < end:
            return False
        return log.log_end_offset >= end and log.chain_at(end) == chain

    def _holds(self, world: ReplicaWorld, broker_id: int, end: int, chain: int) -> bool:
        """Return whether the replica holds everything below `end`, or its own power loss removed what it lacks."""
        return self._has(world.brokers[broker_id], end, chain) or self.ledger.is_destroyed(broker_id, end, chain)

    # the high watermark

    def on_high_watermark(self, broker: CoreBroker, before: int) -> None:
        """Check D3: a leader's high watermark does not fall. D4 and K7: it is justified. D2: below it all replicas are
        equal."""
        log, state = broker.log, broker.state
        mark = log.high_watermark
        if broker.leading is not None:
            self.counts["D3"] += 1
            if mark < before:
                raise Violation("D3", f"leader {broker.node_id} takes {before} back to {mark}")
            self._check_justified(broker, broker.leading, mark)
        if mark > before and state is not None:
            self._apply(broker, state.leader_epoch, before, mark)

    def _check_justified(self, broker: CoreBroker, leading: LeadingReplica, mark: int) -> None:
        world, isr, counts = broker.world, leading.core.isr, self.counts
        counts["K7"] += 1
        enough = min(world.settings.min_isr, len(world.brokers))
        if len(isr.committed) < enough:
            raise Violation("K7", f"leader {broker.node_id} moves to {mark} with {sorted(isr.committed)} of {enough}")
        chain = broker.log.chain_at(mark)
        if chain is None:
            return  # nothing remains below it
        counts["D4"] += 1
        pending = frozenset() if isr.pending is None else isr.pending.ids
        for member in isr.committed | pending:  # the metadata's state, not the core's
            if not self._holds(world, member, mark, chain):
                log = world.brokers[member].log
                evidence = f"leader {broker.node_id} moves to {mark} in epoch {leading.core.leader_epoch}"
                raise Violation(
                    "D4", f"{evidence}; in-sync {member} ends at {log.log_end_offset}, synced {log.synced_end_offset}"
                )

    def _apply(self, broker: CoreBroker, epoch: int, before: int, mark: int) -> None:
        log, ledger, counts = broker.log, self.ledger, self.counts
        batches, index = log.batches, log.position(before)
        while index < len(batches) and batches[index].next_offset <= mark:
            batch = batches[index]
            end, index = batch.next_offset, index + 1
            counts["D2"] += 1
            known = ledger.committed.get(end)
            if known is not None and known.chain == batch.chain:
                continue
            if ledger.voids and ledger.is_void(epoch, end):
                continue
            if known is not None:
                raise Violation("D2", f"broker {broker.node_id} commits {batch}, not {known}")
            if broker.leading is None:
                if ledger.may_be_overstated(end):
                    continue
                raise Violation("D2", f"follower {broker.node_id} commits {batch}, which no leader has")
            ledger.committed[end] = Committed(epoch, batch.chain)
            ledger.end = max(ledger.end, end)

    def on_acknowledge(self, leading: LeadingReplica, batch: ReplicaBatch) -> None:
        """Check D11: an acknowledged batch is below the high watermark, is acknowledged by the leader that wrote it,
        and has enough replicas in sync."""
        broker, core = leading.broker, leading.core
        self.counts["D11"] += 1
        world, end = broker.world, batch.next_offset
        if broker.log.high_watermark < end:
            raise Violation("D11", f"{batch} is acknowledged at high watermark {broker.log.high_watermark}")
        if broker.leading is not leading or batch.epoch != core.leader_epoch:
            raise Violation("D11", f"{batch} is acknowledged in epoch {core.leader_epoch}")
        if len(core.isr.committed) < min(world.settings.min_isr, len(world.brokers)):
            raise Violation("D11", f"{batch} is acknowledged with {sorted(core.isr.committed)} in sync")
        if not self.ledger.is_void(core.leader_epoch, end):
            self.ledger.acknowledged[end] = batch.chain

    # the ISR

    def on_proposal(self, leading: LeadingReplica, proposal: IsrProposal) -> None:
        """Check D18 for a proposal: a replica that is to join the ISR has reached the high watermark and the start of
        the leader's epoch. The proposal of a replaced leader is ignored, because the controller rejects it."""
        broker, core = leading.broker, leading.core
        if core.leader_epoch < broker.world.partition_of(broker.world.controller.image).leader_epoch:
            return
        for member in sorted(proposal.ids - core.isr.committed):
            least = max(broker.log.high_watermark, core.epoch_start_offset)
            chain = broker.log.chain_at(least)
            held = chain is None or self._holds(broker.world, member, least, chain)
            log = broker.world.brokers[member].log
            self.require("D18", held, f"{member} ends at {log.log_end_offset} and is to join at {least}")

    def on_accepted(self, before: PartitionState, image: MetadataImage, command: AlterPartition) -> None:
        """Check M8: an accepted proposal is current, and its members are active in their present incarnation."""
        proposal = command.partitions[0]
        current = (before.leader, before.leader_epoch, before.partition_epoch)
        asked = (command.broker_id, proposal.leader_epoch, proposal.partition_epoch)
        self.require("M8", current == asked, f"{asked} is accepted, the partition is at {current}")
        for member, epoch in proposal.new_isr:
            known = image.brokers.get(member)
            fits = known is not None and known.is_active and epoch in (-1, known.broker_epoch)
            self.require("M8", fits, f"{member} joins in epoch {epoch}, it is {known}")

    # the metadata

    def on_reply(self, image_offset: int, committed: int) -> None:
        """Check M9: no answer of the controller depends on uncommitted records, whatever offset the decision names."""
        self.require("M9", image_offset <= committed, f"an answer rests on {image_offset}, committed is {committed}")

    def on_commit(
        self, world: ReplicaWorld, before: MetadataImage, after: MetadataImage, events: tuple[Event, ...]
    ) -> None:
        old, new = world.partition_of(before), world.partition_of(after)
        for event in events:
            if isinstance(event, RegisterBroker):
                self._recorded.observe(BrokerRegistered(event.broker_id, event.broker_epoch), world.now)
                self._check_left(event, new)
        if new is not old:
            if new.leader_epoch != old.leader_epoch and new.leader_epoch in self._given_up:
                self.counts["given up"] += 1
                self.ledger.void(new.leader_epoch, self._given_up.pop(new.leader_epoch))
            self._recorded.observe(_recorded(world, after, old, new), world.now)
            self._check_members(world, old, new)
        for check in self._recorded.checks:
            self.counts[check.id] = check.seen

    def _check_left(self, event: RegisterBroker, state: PartitionState) -> None:
        """Check M16: a broker that registers is out of the ISR, and after an unclean stop also out of the ELR. The
        first replica of a partition with one replica is exempt if it was never registered."""
        if state.partition_epoch == 0:
            return
        broker_id = event.broker_id
        self.require("M16", broker_id not in state.isr and broker_id != state.leader, f"{broker_id} returns to {state}")
        if event.incarnation_id in self._came_back_unclean:
            self.require("M16", broker_id not in state.elr, f"{broker_id} returns to {state}")

    def _check_members(self, world: ReplicaWorld, old: PartitionState, new: PartitionState) -> None:
        """Check D18 and K7, by the logs: a replica that joins the ISR or ELR has all committed records."""
        end = self.ledger.end
        if not end:
            return
        chain = self.ledger.committed[end].chain
        for name, members in (("D18", set(new.isr) - set(old.isr)), ("K7", new.elr)):
            for member in sorted(members):
                held = self._holds(world, member, end, chain)
                log = world.brokers[member].log
                self.require(name, held, f"{member} ends at {log.log_end_offset}, committed is {end}: {new}")

    # the end

    def finish(self, world: ReplicaWorld) -> None:
        """Check D1: the leader has all acknowledged records."""
        leading = world.leading
        assert leading is not None
        for end, chain in self.ledger.acknowledged.items():
            self.counts["D1"] += 1
            if not self._has(leading.broker, end, chain):
                raise Violation(
                    "D1", f"leader {leading.broker.node_id} lacks the acknowledged batch that ends at {end}"
                )


def _raise(finding: Finding) -> NoReturn:
    raise Violation(finding.check, str(finding))


def _recorded(world: ReplicaWorld, image: MetadataImage, old: PartitionState, new: PartitionState) -> PartitionRecorded:
    """Convert a change of the partition to the observation that the checks of whole clusters read. Electing the replica
    with the longest log, after ISR and ELR were empty, does not count as an unclean election (M5); what it may lose is
    checked by D1."""
    is_new = new.leader_epoch != old.leader_epoch and new.leader >= 0
    unclean = is_new and (old.isr or old.elr) and new.leader not in (*old.isr, *old.elr)
    return PartitionRecorded(
        PARTITION,
        new.isr,
        new.elr,
        new.last_known_elr,
        new.leader,
        new.leader_epoch,
        new.partition_epoch,
        bool(unclean),
        world.settings.min_isr,
        world.now,
        new.replicas,
        tuple(member for member in new.isr if not image.is_active(member)),
        unable=tuple(replica for replica in new.replicas if not image.is_active(replica)),
    )
