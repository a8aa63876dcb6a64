"""Checks of the fast fencing of dead brokers and of elections (M9, K1, K2, K3, K4's second half, K5 and K6).

A broker is fenced only with proof of its death, only in the incarnation that died, without an unclean election, and in
time. Probes and pre-votes stay below their maximum rates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import (
    BrokerFenced,
    Campaigned,
    ControllerReplied,
    EpochClaimed,
    HeartbeatHandled,
    ImagePublished,
    NodeDown,
    PartitionRecorded,
    ProbeEnded,
    ProcessDied,
    Restarted,
    RoleSeen,
)

PROBE_SPACING_MS = 50
CLOCK_ERROR_MS = 2
"""Maximum rounding difference between two clocks that are read in whole ms."""
NO_LEADER = -1
"""Leader id of a partition without a leader."""
Incarnation = tuple[int, int, int]
"""Incarnation of a broker that a controller probes: (controller, broker, broker epoch)."""
PROBES_PER_BROKER_AND_SECOND_MAX = 25
PRE_VOTES_PER_VOTER_AND_SECOND_MAX = 25
"""Maximum pre-vote requests per second to each voter. A candidate that retries after 20 to 50 ms without backoff would
send about thirty."""
FENCE_MS_MAX = 200
CONTROLLER_MS_MAX = 500
GREETED_MS_MAX = 500
"""Maximum time until brokers have connected to a controller that has become active."""


class OnlyCommittedMetadataIsVisible(Check):
    """Check that controller responses and published images depend only on committed records. The first image of an
    incarnation may come from a snapshot, before the incarnation has a high watermark. So that image is compared with
    the highest offset committed by any replica."""

    id: ClassVar[str] = "M9"
    statement: ClassVar[str] = "Controller responses and published images depend only on committed records."

    def __init__(self) -> None:
        super().__init__()
        self._committed = 0
        self._lives: set[tuple[int, int]] = set()

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {ImagePublished: self.published, ControllerReplied: self.replied, RoleSeen: self.role}

    def role(self, seen: RoleSeen) -> None:
        self._committed = max(self._committed, seen.high_watermark)

    def published(self, seen: ImagePublished) -> None:
        self.count()
        life = (seen.node, seen.incarnation)
        committed = seen.committed_offset if life in self._lives else max(seen.committed_offset, self._committed)
        self._lives.add(life)
        if seen.offset > committed:
            self.fail(
                "an image was published above the high watermark",
                node=seen.node,
                offset=seen.offset,
                high_watermark=committed,
            )

    def replied(self, seen: ControllerReplied) -> None:
        self.count()
        if seen.depends_on > seen.high_watermark:
            self.fail(
                "a reply left before what it depends on was committed",
                node=seen.node,
                depends_on=seen.depends_on,
                high_watermark=seen.high_watermark,
            )


class FenceNeedsProof(Check):
    """Check that no broker is fenced before its session timeout without proof of its death. The proof is recomputed
    from the probe answers that reached the controller."""

    id: ClassVar[str] = "K1"
    statement: ClassVar[str] = "No broker is fenced before its session timeout without proof of its death."

    def __init__(self) -> None:
        super().__init__()
        self._probes: dict[Incarnation, list[ProbeEnded]] = {}
        self._same: set[Incarnation] = set()
        self._heartbeats: dict[Incarnation, int] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {ProbeEnded: self.probed, HeartbeatHandled: self.heartbeat, BrokerFenced: self.fenced}

    def probed(self, seen: ProbeEnded) -> None:
        key = (seen.controller, seen.broker, seen.broker_epoch)
        if seen.outcome == "SAME":
            self._same.add(key)
            self._probes.pop(key, None)
        else:
            self._probes.setdefault(key, []).append(seen)

    def heartbeat(self, seen: HeartbeatHandled) -> None:
        self._heartbeats[(seen.controller, seen.broker, seen.broker_epoch)] = seen.at_ms

    def fenced(self, seen: BrokerFenced) -> None:
        if seen.session_age_ms >= seen.session_timeout_ms:
            return
        self.count()
        key = (seen.controller, seen.broker, seen.current_epoch)
        probes = self._probes.get(key, [])
        if seen.superseded and any(p.outcome in ("OTHER", "REFUSED", "CLOSED") for p in probes):
            return
        if any(p.outcome == "OTHER" for p in probes):
            return
        heard = self._heartbeats.get(key, -1)
        dead = [p.at_ms for p in probes if p.outcome in ("REFUSED", "CLOSED") and p.at_ms >= heard]
        spaced = len(dead) >= 2 and dead[-1] - dead[0] >= PROBE_SPACING_MS - CLOCK_ERROR_MS
        if not spaced or key not in self._same:
            self.fail(
                "a broker was fenced without proof",
                controller=seen.controller,
                broker=seen.broker,
                epoch=seen.current_epoch,
                superseded=seen.superseded,
                dead_answers_ms=dead,
                answered_same_before=key in self._same,
                last_heartbeat_ms=heard,
                session_age_ms=seen.session_age_ms,
            )


class FenceHitsItsTarget(Check):
    id: ClassVar[str] = "K2"
    statement: ClassVar[str] = "A fast fence commits only on the broker epoch and connection that it was decided for."

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {BrokerFenced: self.fenced}

    def fenced(self, seen: BrokerFenced) -> None:
        if seen.decided_epoch is None:
            return
        self.count()
        if seen.decided_epoch != seen.current_epoch or seen.decided_connection != seen.current_connection:
            self.fail(
                "a fence hit another incarnation",
                broker=seen.broker,
                decided=(seen.decided_epoch, seen.decided_connection),
                current=(seen.current_epoch, seen.current_connection),
            )


class NoUncleanElectionFromFastFence(Check):
    """Check that no leader outside ISR and ELR is elected because of a young fence. A fence is young if, when the
    election was recorded, the last heartbeat of the fenced broker was less than one session timeout ago. Elections
    count as input if a young fence removed the partition's leader or a member of its ISR or ELR."""

    id: ClassVar[str] = "K3"
    statement: ClassVar[str] = (
        "No leader outside ISR and ELR is elected because of a fence younger than the session timeout."
    )

    def __init__(self) -> None:
        super().__init__()
        self._fences: deque[BrokerFenced] = deque(maxlen=64)
        self._before: dict[tuple[str, int], PartitionRecorded] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {BrokerFenced: self.fenced, PartitionRecorded: self.recorded}

    def fenced(self, seen: BrokerFenced) -> None:
        if seen.session_age_ms < seen.session_timeout_ms:
            self._fences.append(seen)

    def recorded(self, seen: PartitionRecorded) -> None:
        before = self._before.get(seen.topic_partition)
        self._before[seen.topic_partition] = seen
        if before is None or seen.leader in (before.leader, NO_LEADER):
            return
        for fence in self._fences:
            since_heard = seen.at_ms - fence.at_ms + fence.session_age_ms
            if fence.broker in (before.leader, *before.isr, *before.elr) and since_heard < fence.session_timeout_ms:
                self.count()
                if seen.unclean:
                    self.fail(
                        "an unclean election followed a fast fence",
                        partition=seen.topic_partition,
                        fenced=fence.broker,
                        elected=seen.leader,
                        since_last_heard_ms=since_heard,
                    )


class ProbeAndVoteRates(Check):
    """Check that probes of a broker and pre-vote requests to a voter stay below fixed limits per second. They are
    counted per incarnation of the sender, because each incarnation may send its first probe or pre-vote at once."""

    id: ClassVar[str] = "K5"
    statement: ClassVar[str] = (
        "Probes of a broker, and pre-vote requests to a voter, stay below fixed limits per second."
    )

    def __init__(self) -> None:
        super().__init__()
        self._probes: dict[tuple[int, int], deque[int]] = {}
        self._pre_votes: dict[tuple[int, int], deque[int]] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {ProbeEnded: self.probed, Campaigned: self.campaigned, NodeDown: self.down}

    def down(self, seen: NodeDown) -> None:
        self._pre_votes = {pair: times for pair, times in self._pre_votes.items() if pair[0] != seen.node}

    def probed(self, seen: ProbeEnded) -> None:
        count = self._in_a_second(self._probes, (seen.controller, seen.broker))
        if count > PROBES_PER_BROKER_AND_SECOND_MAX:
            self.fail("too many probes of one broker", broker=seen.broker, in_the_last_second=count)

    def campaigned(self, seen: Campaigned) -> None:
        if seen.asked is None:
            return
        count = self._in_a_second(self._pre_votes, (seen.node, seen.asked))
        if count > PRE_VOTES_PER_VOTER_AND_SECOND_MAX:
            self.fail(
                "too many pre-votes asked of one voter", node=seen.node, voter=seen.asked, in_the_last_second=count
            )

    def _in_a_second(self, asked: dict[tuple[int, int], deque[int]], pair: tuple[int, int]) -> int:
        """Count this request and return the number of requests within the last second."""
        self.count()
        recent = asked.setdefault(pair, deque())
        recent.append(self.at_ms)
        while recent[0] <= self.at_ms - 1000:
            recent.popleft()
        return len(recent)


class FencingAndElectionTimes(Check):
    """Check that a dead broker is fenced, and a dead controller replaced, within fixed virtual times. Only deaths that
    can be detected fast count (K1): the process is gone, its host answers, and a majority is up. Also the active
    controller must have seen this incarnation of the broker (even as a standby), or must have been active for long
    enough. If the active controller goes down meanwhile, the deadlines are dropped, because its successor detects the
    death from the beginning."""

    id: ClassVar[str] = "K6"
    statement: ClassVar[str] = "A dead broker is fenced, and a dead controller replaced, within fixed virtual times."

    def __init__(self, link_latency_ms: int) -> None:
        super().__init__()
        self._latency_ms = link_latency_ms
        self._broker_deaths: dict[int, ProcessDied] = {}
        self._controller_death: ProcessDied | None = None
        self._leader: int | None = None
        self._epoch = 0
        self._leads_since_ms = 0
        self._met: set[tuple[int, int]] = set()
        """(controller, broker) pairs in which the broker has answered a probe of the controller, in the present
        incarnations of both."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            ProcessDied: self.died,
            NodeDown: self.down,
            Restarted: self.restarted,
            ProbeEnded: self.probed,
            BrokerFenced: self.fenced,
            RoleSeen: self.role,
        }

    def probed(self, seen: ProbeEnded) -> None:
        if seen.outcome == "SAME":
            self._met.add((seen.controller, seen.broker))

    def restarted(self, seen: Restarted) -> None:
        self._met = {pair for pair in self._met if seen.node not in pair}

    def down(self, seen: NodeDown) -> None:
        if seen.node == self._leader:
            self._broker_deaths.clear()

    def died(self, seen: ProcessDied) -> None:
        if not seen.majority_up:
            self._controller_death = None
            self._broker_deaths.clear()
            return
        if seen.was_active_controller:
            self._controller_death = seen
            self._broker_deaths.clear()
        elif "broker" in seen.roles and self._controller_death is None and self._is_known(seen):
            self._broker_deaths[seen.node] = seen

    def _is_known(self, died: ProcessDied) -> bool:
        """Return whether the active controller must have seen this broker alive."""
        return (self._leader, died.node) in self._met or died.at_ms >= self._leads_since_ms + GREETED_MS_MAX

    def fenced(self, seen: BrokerFenced) -> None:
        death = self._broker_deaths.pop(seen.broker, None)
        if death is None:
            return
        self.count()
        took_ms = seen.at_ms - death.at_ms
        if took_ms > FENCE_MS_MAX + 2 * self._latency_ms:
            self.fail("a dead broker was fenced late", broker=seen.broker, took_ms=took_ms)

    def role(self, seen: RoleSeen) -> None:
        if not seen.is_leader:
            return
        self._leader = seen.node
        if seen.epoch > self._epoch:
            self._epoch, self._leads_since_ms = seen.epoch, self.at_ms
        death = self._controller_death
        if death is None or seen.node == death.node:
            return
        self._controller_death = None
        self.count()
        took_ms = self.at_ms - death.at_ms
        if took_ms > CONTROLLER_MS_MAX + 3 * self._latency_ms:
            self.fail("a dead controller was replaced late", dead=death.node, new=seen.node, took_ms=took_ms)

    def finish(self) -> None:
        for death in self._broker_deaths.values():
            if self.at_ms - death.at_ms > FENCE_MS_MAX + 2 * self._latency_ms:
                self.fail("a dead broker was never fenced", broker=death.node, died_ms=death.at_ms)
        if self._controller_death is not None:
            self.fail("a dead controller was never replaced", dead=self._controller_death.node)


class EpochsAreSteady(Check):
    """Check that no epoch rises while a leader keeps contact with a majority (the second half of K4). `is_steady`
    returns whether a leader has fetch contact with a majority now. It is evaluated when a node adopts the epoch. The
    node's vote request is sent later, when the epoch is on its disk, which may be slow."""

    id: ClassVar[str] = "K4b"
    statement: ClassVar[str] = "No epoch rises while a leader keeps contact with a majority."

    def __init__(self, is_steady: Callable[[], bool]) -> None:
        super().__init__()
        self._is_steady = is_steady
        self._highest = 0

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {EpochClaimed: self.claimed, RoleSeen: self.rises}

    def claimed(self, seen: EpochClaimed) -> None:
        if self._is_steady():
            self.count()
        self.rises(seen)

    def rises(self, seen: EpochClaimed | RoleSeen) -> None:
        if seen.epoch > self._highest:
            steady = self._is_steady()
            if steady and self._highest:
                self.fail("an epoch rose although its leader had a majority", node=seen.node, epoch=seen.epoch)
            self._highest = seen.epoch
