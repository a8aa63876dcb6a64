"""All checks of a run, connected to the shared records of committed and acknowledged batches, with one entry point:
`Suite.observe`.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.sim.check.allocators import ProducerIdsAllocatedOnce
from kraft.sim.check.authorship import LeaderWritesMetadata, LeaderWritesPartition
from kraft.sim.check.base import Check, Checks, Finding
from kraft.sim.check.consumer_groups.answers import (
    FormerMembersCommitNothing,
    HeartbeatsTellCommittedState,
    OffsetsGoBackOnlyByLateCommits,
)
from kraft.sim.check.consumer_groups.feed import GroupFeed
from kraft.sim.check.consumer_groups.owners import OwnersAreAlone
from kraft.sim.check.consumer_groups.states import (
    ConsumerStateIsReplay,
    GroupEpochsRise,
    PartitionsHaveOneHolder,
    SettledGroupIsStable,
)
from kraft.sim.check.failure_detection import (
    EpochsAreSteady,
    FenceHitsItsTarget,
    FenceNeedsProof,
    FencingAndElectionTimes,
    NoUncleanElectionFromFastFence,
    OnlyCommittedMetadataIsVisible,
    ProbeAndVoteRates,
)
from kraft.sim.check.images import ImageEquality, ImageIsTheFold, PublicationOrder
from kraft.sim.check.isr_changes import AlterPartitionPrecondition
from kraft.sim.check.log_offsets import BatchesAreContiguous, LogOffsetsInOrder
from kraft.sim.check.observations import (
    BatchWritten,
    BrokerRegistered,
    LogCut,
    LogDurable,
    NodeDown,
    Observation,
    PartitionRecorded,
    Restarted,
    RoleSeen,
    TopicDeleted,
    TopicPartition,
)
from kraft.sim.check.partition_records import (
    BrokerEpochsRise,
    IsrIsWellFormed,
    JoiningReplicasAreComplete,
    LeaderIsInIsr,
    OnlyActiveBrokersLead,
    OnlyActiveReplicasJoin,
    PartitionEpochsRise,
)
from kraft.sim.check.partitions import (
    AckedDurability,
    AcksAllReply,
    Damage,
    EligibleReplicas,
    HighWatermarkJustified,
    NoDivergence,
    PartitionLedgers,
)
from kraft.sim.check.prefix_deletion import OnlyCommittedPrefixesDeleted
from kraft.sim.check.producers import NoSequenceTwice, ProducerEpochsRise, SequencesFollow
from kraft.sim.check.raft.candidacy import LeadersHaveFetchingMajority, OnlyVotersAreCandidates
from kraft.sim.check.raft.replicated_logs import (
    CommitRule,
    CommittedRecordsAreKept,
    HighWatermarkSanity,
    LeaderAppendsOnly,
    LeaderCompleteness,
    LogMatching,
    MetadataLedger,
    OneRecordPerName,
    SnapshotSoundness,
    StateMachineSafety,
)
from kraft.sim.check.raft.voter_sets import Membership
from kraft.sim.check.raft.voting import (
    ElectionSafety,
    EpochsRise,
    OneVotePerEpoch,
    PersistBeforeReply,
    PreVoteChangesNothing,
    VoteRestriction,
)
from kraft.sim.check.reassignments import ReassignmentSafety
from kraft.sim.check.reported_ends import ReportedEndOffsetsNeverDecrease
from kraft.sim.check.shadow import Shadows
from kraft.sim.check.share_groups.feed import ShareFeed
from kraft.sim.check.share_groups.persistence import share_checks
from kraft.sim.check.throttles import ThrottleNeverDelaysIsr
from kraft.sim.check.transactions.feed import TransactionFeed
from kraft.sim.check.transactions.identities import IdentitiesHaveOneOwner
from kraft.sim.check.transactions.phases import OneOutcome, TwoPhaseOrder
from kraft.sim.check.transactions.stability import StableOffsetIsFirstOpen
from kraft.sim.check.transactions.writes import DataIsEnrolled, FencedProducersWriteNothing
from kraft.sim.check.truncation import TruncationDiscipline
from kraft.sim.check.unclean_restarts import UncleanBrokersLeave

WITHOUT_FETCHES_MS_MAX = 5_000
"""Maximum time that a leader may lead without fetches from a majority: Kafka's default check-quorum timeout plus one
fetch timeout."""


class Suite:
    """The checks of one run. Shadow logs are updated before the checks receive a write, and after they receive a
    truncation."""

    def __init__(
        self,
        voters: frozenset[int],
        *,
        link_latency_ms: int = 1,
        unheard_ms_max: int = WITHOUT_FETCHES_MS_MAX,
        is_steady: Callable[[], bool] = lambda: False,
    ) -> None:
        self.shadows = Shadows()
        self.ledger = MetadataLedger()
        self.partitions = PartitionLedgers()
        self.damage = Damage()
        self.durability = AckedDurability(self.shadows, self.partitions, self.damage)
        self.leader_in_sync = LeaderIsInIsr(self.shadows, self.partitions)
        self.membership = Membership(voters)
        self.transactions = TransactionFeed(self.shadows, self.partitions)
        self.groups = GroupFeed(self.shadows, self.partitions)
        self.shares = ShareFeed(self.shadows, self.partitions)
        every: list[Check] = [
            ElectionSafety(),
            OneVotePerEpoch(),
            EpochsRise(),
            LeaderAppendsOnly(self.shadows),
            LogMatching(self.shadows),
            LeaderCompleteness(self.shadows, self.ledger),
            StateMachineSafety(self.shadows, self.ledger),
            HighWatermarkSanity(),
            CommitRule(self.shadows, voters),
            self.membership,
            CommittedRecordsAreKept(self.shadows, self.ledger),
            OneRecordPerName(),
            SnapshotSoundness(self.ledger),
            PersistBeforeReply(self.shadows),
            VoteRestriction(self.shadows),
            OnlyVotersAreCandidates(voters),
            LeadersHaveFetchingMajority(voters, unheard_ms_max),
            LogOffsetsInOrder(self.shadows, self.partitions),
            BatchesAreContiguous(self.shadows),
            NoDivergence(self.shadows, self.partitions),
            self.durability,
            ReportedEndOffsetsNeverDecrease(self.partitions),
            HighWatermarkJustified(self.shadows, self.partitions, self.damage),
            LeaderWritesPartition(),
            AcksAllReply(),
            TruncationDiscipline(self.shadows, self.partitions, self.damage),
            OnlyCommittedPrefixesDeleted(self.shadows),
            NoSequenceTwice(self.shadows, self.partitions),
            SequencesFollow(self.shadows, self.partitions),
            ProducerEpochsRise(self.shadows, self.partitions),
            FencedProducersWriteNothing(),
            OneOutcome(self.transactions.ledger),
            StableOffsetIsFirstOpen(self.shadows, self.transactions.logs),
            TwoPhaseOrder(self.transactions.ledger),
            IdentitiesHaveOneOwner(),
            DataIsEnrolled(self.transactions.ledger),
            JoiningReplicasAreComplete(self.shadows, self.partitions, self.damage),
            PartitionEpochsRise(),
            IsrIsWellFormed(),
            self.leader_in_sync,
            OnlyActiveBrokersLead(),
            OnlyActiveReplicasJoin(),
            AlterPartitionPrecondition(),
            UncleanBrokersLeave(),
            ProducerIdsAllocatedOnce(),
            BrokerEpochsRise(),
            ReassignmentSafety(),
            ThrottleNeverDelaysIsr(),
            ImageEquality(),
            ImageIsTheFold(),
            PublicationOrder(),
            LeaderWritesMetadata(),
            OnlyCommittedMetadataIsVisible(),
            FenceNeedsProof(),
            FenceHitsItsTarget(),
            NoUncleanElectionFromFastFence(),
            PreVoteChangesNothing(),
            EpochsAreSteady(is_steady),
            ProbeAndVoteRates(),
            FencingAndElectionTimes(link_latency_ms),
            EligibleReplicas(self.shadows, self.partitions, self.damage),
            GroupEpochsRise(self.groups.ledger),
            PartitionsHaveOneHolder(self.groups.ledger),
            OwnersAreAlone(self.groups.ledger),
            OffsetsGoBackOnlyByLateCommits(),
            FormerMembersCommitNothing(self.groups.ledger),
            HeartbeatsTellCommittedState(self.groups.ledger),
            ConsumerStateIsReplay(),
            SettledGroupIsStable(self.groups.ledger),
            *share_checks(),
        ]
        self.checks = Checks(every)

    def observe(self, observation: Observation, at_ms: int) -> None:
        if isinstance(observation, BatchWritten):
            self.shadows.on_written(observation)
            if observation.log is not None:
                self._note_repair(observation.node, observation.log)
        elif isinstance(observation, LogDurable):
            self.shadows.on_durable(observation)
        elif isinstance(observation, BrokerRegistered):
            self.damage.registered(observation.broker, observation.incarnation)
        elif isinstance(observation, Restarted):
            self.damage.restarted(observation.node, observation.incarnation)
        elif isinstance(observation, NodeDown):
            self.damage.down(observation.node)
        elif isinstance(observation, TopicDeleted):
            self.partitions.deleted.add(observation.topic)
        elif isinstance(observation, PartitionRecorded):
            for member in observation.isr:
                self._note_repair(member, observation.topic_partition)
        for event in self.transactions.observe(observation):
            self.checks.observe(event, at_ms)
        for event in self.groups.observe(observation):
            self.checks.observe(event, at_ms)
        for event in self.shares.observe(observation):
            self.checks.observe(event, at_ms)
        self.checks.observe(observation, at_ms)
        if isinstance(observation, LogCut):
            self.shadows.on_cut(observation)
            if observation.log is not None:
                self.damage.cut(observation.node, observation.log, observation.start_offset, observation.end_offset)
        elif isinstance(observation, RoleSeen):
            self.shadows.log(observation.node, None).left_behind.clear()

    def _note_repair(self, node: int, log: TopicPartition) -> None:
        """Mark a damaged replica as repaired if it holds all that is committed."""
        if not self.damage.may_be_repaired(node, log):
            return
        if self.partitions.is_all_in(self.shadows.log(node, log), log):
            self.damage.repaired(node, log)

    def finish(self, at_ms: int) -> None:
        """Finish all checks at the end of the run."""
        for event in self.transactions.rest():
            self.checks.observe(event, at_ms)
        self.checks.finish(at_ms)

    @property
    def findings(self) -> list[Finding]:
        return self.checks.findings
