"""Schedules for the controller: decisions on a small cluster of plain values, and the command queue around them.

The swarm draws commands at random. The records of each decision are compared with the image before it. The rules for
this comparison are written here independently of the code under test.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from kraft.control import AllocateProducerIds, AlterPartition, BrokerHeartbeat, FenceBrokers, FenceCause, FenceTarget
from kraft.control.commands import PartitionProposal, ProposedMember, RegisterBrokerCommand
from kraft.control.decision import BrokerSession
from kraft.control.features import SUPPORTED_FEATURES
from kraft.controller.command_queue import CommandWaiter
from kraft.image import Endpoint, MetadataImage, PartitionState, digest, replay
from kraft.image.dump import dump
from kraft.image.events import BrokerRegistrationChange, decode_event
from tests.bugbank.mutation import require
from tests.stages.command_host import Host
from tests.stages.decided_cluster import CLUSTER_ID, Cluster, directory_id, incarnation_id, topic_id

BROKERS = (1, 2, 3, 4)


class Judged:
    """A cluster in which every decision is checked. `block_ends` has the ends of the allocated blocks of producer
    ids."""

    def __init__(self, *brokers: int) -> None:
        self.cluster = Cluster()
        self.cluster.add_brokers(*(brokers or BROKERS))
        self.lives = dict.fromkeys(brokers or BROKERS, 1)
        self.unclean: set[int] = set()
        """Brokers that restarted uncleanly and have not sent a heartbeat since then: they may not be in an ISR or
        ELR."""
        self.highest_epoch = max(self.cluster.epoch(one) for one in self.lives)
        self.block_end = 0

    def decide(self, command: Any) -> Any:
        """Carry out a command, and then check all partitions."""
        before = self.cluster.image
        reply = self.cluster.decide_all(command)
        self._judge(before)
        return reply

    def _judge(self, before: MetadataImage) -> None:
        image = self.cluster.image
        for topic in image.topics:
            old = before.topics.get_by_id(topic.topic_id)
            for index, state in topic.partitions():
                self._judge_shape(state)
                known = None if old is None else old.find(index)
                if known is not None and known is not state and known != state:
                    self._judge_change(known, state)

    def _judge_shape(self, state: PartitionState) -> None:
        text = f"leader {state.leader}, ISR {state.isr}, ELR {state.elr}, replicas {state.replicas}"
        is_active = self.is_active
        require("M4", set(state.isr) <= set(state.replicas) and not set(state.isr) & set(state.elr), text)
        require("M4", state.isr or state.elr or state.last_known_elr, text)
        require("M5", state.leader == -1 or state.leader in state.isr, text)
        require("M6", state.leader == -1 or is_active(state.leader), f"an inactive broker leads: {text}")
        require("M6", len(state.isr) < 2 or all(map(is_active, state.isr)), f"an inactive broker is in sync: {text}")

    def _judge_change(self, old: PartitionState, new: PartitionState) -> None:
        require("M3", new.partition_epoch > old.partition_epoch, f"partition epoch {new.partition_epoch}: {new}")
        rises = new.leader_epoch > old.leader_epoch
        require("M3", rises or (new.leader == old.leader and new.leader_epoch == old.leader_epoch), f"{old} to {new}")
        clean = (*old.isr, *old.elr) or old.last_known_elr  # the last leader may return (KIP-966)
        require("M5", new.leader in (-1, old.leader) or new.leader in clean, f"unclean: {old} to {new}")

    def is_active(self, broker: int) -> bool:
        found = self.cluster.image.brokers.get(broker)
        return found is not None and found.is_active

    # commands

    def fence(self, *brokers: int) -> None:
        targets = tuple(
            FenceTarget(one, self.cluster.epoch(one), self.cluster.sessions[one].connection_number) for one in brokers
        )
        self.decide(FenceBrokers(targets=targets, cause=FenceCause.PROCESS_DIED))
        for one in brokers:
            self.cluster.sessions[one] = self.cluster.sessions[one]._replace(last_heard_ms=0, is_connected=False)

    def beat(self, broker: int, *, want_shut_down: bool = False) -> None:
        cluster = self.cluster
        epoch = cluster.epoch(broker)
        was_fenced = cluster.image.brokers[broker].fenced
        offset = cluster.image.offset
        known = cluster.sessions.get(broker)
        number = 1_000 + broker if known is None else known.connection_number
        cluster.sessions[broker] = BrokerSession(epoch, cluster.now_ms, number, True, offset)
        command = BrokerHeartbeat(
            broker_id=broker, broker_epoch=epoch, metadata_offset=offset, want_shut_down=want_shut_down
        )
        self.decide(command)
        if was_fenced:
            self.unclean.discard(broker)

    def register(self, broker: int, *, clean: bool, life: int | None = None) -> Any:
        """Register a new incarnation of a broker, and return the reply."""
        cluster = self.cluster
        life = self.lives[broker] + 1 if life is None else life
        old = cluster.image.brokers[broker]
        was_live = cluster.context().is_session_live(broker, old.broker_epoch)
        before = cluster.image
        command = RegisterBrokerCommand(
            cluster_id=CLUSTER_ID,
            broker_id=broker,
            incarnation_id=incarnation_id(broker, life),
            endpoints=(Endpoint("PLAINTEXT", "localhost", 9000 + broker, "PLAINTEXT"),),
            log_dirs=(directory_id(broker),),
            features=SUPPORTED_FEATURES,
            previous_broker_epoch=old.broker_epoch if clean else -1,
        )
        reply = self.decide(command)
        if reply.error_code == 0 and life != self.lives[broker]:
            require("M7", not was_live, f"two incarnations of broker {broker} at a time")
            require("M7", reply.broker_epoch > self.highest_epoch, f"broker epoch {reply.broker_epoch} did not rise")
            self.highest_epoch = reply.broker_epoch
            self.lives[broker] = life
            if not clean:
                self._judge_restart(before, broker)
        return reply

    def _judge_restart(self, before: MetadataImage, broker: int) -> None:
        for topic in self.cluster.image.topics:
            old = before.topics.get_by_id(topic.topic_id)
            for index, state in topic.partitions():
                had_others = old is None or set(old.partition(index).isr) != {broker}
                inside = broker in state.isr or broker in state.elr
                require("M16", not inside or not had_others, f"{broker} lost its tail and is in {state.isr}{state.elr}")

    def alter(self, index: int, members: tuple[ProposedMember, ...], **changed: Any) -> Any:
        """Let the leader propose these members of the ISR."""
        cluster = self.cluster
        state = cluster.partition("orders", index)
        if state.leader < 0:
            return None
        whole = PartitionProposal(topic_id(1), index, state.leader_epoch, state.partition_epoch, members)
        before = cluster.image
        command = AlterPartition(
            broker_id=state.leader,
            broker_epoch=cluster.epoch(state.leader),
            partitions=(whole._replace(**changed),),
        )
        reply = self.decide(command)
        after = cluster.partition("orders", index)
        joined = set(after.isr) - set(state.isr)
        for member in members:
            known = before.brokers.get(member.broker_id)
            if member.broker_id in joined and known is not None:
                require("M6", known.is_active, f"{member} is fenced or stops, and joined")
                current = member.broker_epoch in (-1, known.broker_epoch)
                require("M8", current, f"{member} joined, its broker epoch is {known.broker_epoch}")
        return reply

    def member(self, broker: int, *, stale: bool = False) -> ProposedMember:
        return ProposedMember(broker, self.cluster.epoch(broker) - stale)

    def block(self) -> None:
        """Request a block of producer ids."""
        broker = next(one for one in self.lives)
        reply = self.decide(AllocateProducerIds(broker_id=broker, broker_epoch=self.cluster.epoch(broker)))
        if reply.error_code == 0:
            require("M17", reply.first_producer_id >= self.block_end, f"{reply.first_producer_id} is handed out twice")
            self.block_end = reply.first_producer_id + reply.count


def control_plane(seed: int) -> None:
    """Let brokers die (also two or three at once), restart cleanly or uncleanly, and stop, while leaders propose
    brokers for ISRs."""
    draw = random.Random(seed)
    judged = Judged()
    judged.cluster.add_topic("orders", (1, 2, 3), (2, 3, 4), (3, 4, 1), (4, 1, 2))

    def some(active: bool) -> list[int]:
        found = [one for one in judged.lives if judged.is_active(one) == active]
        return draw.sample(found, draw.randint(1, min(2, len(found)))) if found else []

    for _ in range(120):
        judged.cluster.now_ms += draw.choice((10, 500, 12_000))
        for one in judged.lives:
            if judged.is_active(one):
                judged.beat(one)
        step = draw.randrange(8)
        if step == 0 and (chosen := some(active=True)):
            judged.fence(*chosen)
        elif step == 1 and (chosen := some(active=False)):
            judged.register(chosen[0], clean=bool(draw.randrange(2)))
        elif step == 2 and (chosen := some(active=False)):
            judged.beat(chosen[0])
        elif step == 3 and not draw.randrange(3) and (chosen := some(active=True)):
            judged.beat(chosen[0], want_shut_down=True)
        elif step == 4:
            judged.register(draw.choice(BROKERS), clean=False)
        elif step == 5:
            judged.block()
            _round_trip(judged.cluster.image)
        else:
            _propose(judged, draw)


def _propose(judged: Judged, draw: random.Random) -> None:
    index = draw.randrange(4)
    state = judged.cluster.partition("orders", index)
    others = [one for one in state.replicas if one != state.leader]
    chosen = draw.sample(others, draw.randint(0, len(others)))
    members = [judged.member(one, stale=not draw.randrange(6)) for one in chosen]
    if state.leader >= 0:
        judged.alter(index, tuple(sorted((judged.member(state.leader), *members))))


def _round_trip(image: MetadataImage) -> None:
    """Check that the content of a snapshot gives the same image."""
    loaded = replay(MetadataImage(), list(dump(image)), image.offset, image.epoch)
    for name in ("brokers", "features", "cluster_id", "next_producer_id"):
        require("M2", getattr(loaded, name) == getattr(image, name), f"{name} is not what the snapshot was made of")
    require("M2", digest(loaded) == digest(image), "the snapshot's image has another digest")


# directed


def _three() -> Judged:
    judged = Judged(1, 2, 3)
    judged.cluster.add_topic("orders", (1, 2, 3))
    return judged


def a_snapshot_is_loaded(seed: int) -> None:
    judged = _three()
    judged.fence(3)
    judged.block()
    _round_trip(judged.cluster.image)


def the_isr_shrinks_and_expands(seed: int) -> None:
    judged = _three()
    judged.alter(0, (judged.member(1),))
    judged.alter(0, (judged.member(1), judged.member(2)))


def a_proposal_is_late(seed: int) -> None:
    """Propose a follower for the ISR, and deliver the proposal late: meanwhile the follower has lost its last records,
    registered again, and been unfenced."""
    judged = _three()
    judged.alter(0, (judged.member(1), judged.member(3)))
    late = (judged.member(1), judged.member(2), judged.member(3))
    judged.fence(2)
    judged.register(2, clean=False)
    judged.beat(2)
    judged.alter(0, late)


def a_stopping_follower_is_proposed(seed: int) -> None:
    judged = _three()
    judged.alter(0, (judged.member(1), judged.member(3)))
    cluster = judged.cluster
    cluster.apply([BrokerRegistrationChange(2, cluster.epoch(2), in_controlled_shutdown=True)])
    judged.alter(0, (judged.member(1), judged.member(2), judged.member(3)))


def two_brokers_die_at_once(seed: int) -> None:
    judged = _three()
    judged.fence(1, 2)


def the_last_in_sync_dies(seed: int) -> None:
    judged = _three()
    cluster = judged.cluster
    judged.alter(0, (judged.member(1),))
    state = cluster.partition("orders")
    require("M4", state.isr == (1,), f"{state}")
    cluster.sessions[1] = cluster.sessions[1]._replace(last_heard_ms=0)
    target = FenceTarget(1, cluster.epoch(1), 1_001)
    judged.decide(FenceBrokers(targets=(target,), cause=FenceCause.SESSION_EXPIRED))


def a_follower_loses_its_tail(seed: int) -> None:
    """Restart a follower that has lost its last records, before its session expires. Only its registration reveals the
    loss."""
    judged = _three()
    cluster = judged.cluster
    cluster.sessions[2] = cluster.sessions[2]._replace(last_heard_ms=0)
    judged.register(2, clean=False)


def a_twin_starts(seed: int) -> None:
    judged = _three()
    judged.register(2, clean=False)


def blocks_across_a_failover(seed: int) -> None:
    """Allocate two blocks of producer ids, with a snapshot loaded in between."""
    judged = _three()
    judged.block()
    judged.block()
    image = judged.cluster.image
    judged.cluster.image = replay(MetadataImage(), list(dump(image)), image.offset, image.epoch)
    judged.block()


# the command queue


def _told_uncommitted(host: Host) -> None:
    require("M9", not host.told, f"told before it is committed: {host.told}")


class JudgedLine(Host):
    """A command queue whose quorum commits late and loses leadership. `committed` is the image of all committed
    events."""

    def __init__(self) -> None:
        super().__init__()
        self.committed = self.cluster.image

    def ask(self, command: Any, *, waits: bool) -> None:
        """Submit a command. Its reply must not be sent before all records are committed that were in the log when it
        was decided."""
        if not waits:
            self.queue.submit(command)
            return
        told: list[int] = []

        def tell(_: Any) -> None:
            told.append(self.quorum.high_watermark)

        self.queue.submit(command, CommandWaiter(tell, lambda: None, tell))
        end = self.quorum.log_end_offset
        require("M9", not told or told[0] >= end, f"told at once, at {told} of {end}")

    def fail_over(self) -> None:
        """Let another leader lead for a while, and then this one again, with the committed records only."""
        quorum = self.quorum
        quorum.truncate()
        self.queue.deactivate()
        start = self.committed.offset
        values = quorum.values[start : quorum.high_watermark]
        self.committed = replay(self.committed, [decode_event(value) for value in values], quorum.high_watermark, 1)
        quorum.epoch += 1
        self.queue.activate(self.committed, quorum.epoch, quorum.high_watermark)
        image = self.queue.image
        require("M1", image is not None and digest(image) == digest(self.committed), "it begins with what was lost")


def lines(seed: int) -> None:
    """Submit commands with and without a waiting client, while commits are partial and leadership is lost."""
    draw = random.Random(seed)
    line = JudgedLine()
    for _ in range(60):
        step = draw.randrange(8)
        if step < 3:
            line.ask(line.block(), waits=bool(draw.randrange(2)))
        elif step < 5:
            line.ask(replace(line.block(), broker_epoch=-1), waits=True)
        elif step < 7:
            quorum = line.quorum
            line.commit(draw.randint(quorum.high_watermark, quorum.log_end_offset))
        else:
            line.fail_over()


def a_reply_waits_for_the_quorum(seed: int) -> None:
    host = Host()
    host.submit(host.block(), "block")
    _told_uncommitted(host)
    host.commit()
    require("M11", host.names == ["block"], f"{host.told}")


def a_read_behind_an_uncommitted_change(seed: int) -> None:
    """Read a value that depends on a change that followers do not have yet, and for which no client waits."""
    host = Host()
    host.queue.submit(host.block())
    host.submit(replace(host.block(), broker_epoch=-1), "read")
    _told_uncommitted(host)
    host.commit()
    require("M11", host.names == ["read"], f"{host.told}")


def a_new_leader_gets_requests_at_once(seed: int) -> None:
    """Send requests to a new leader that has appended its first changes, before its quorum has committed a record of
    this epoch."""
    host = Host()
    host.queue.deactivate()
    host.quorum.values.append(b"")
    host.quorum.high_watermark = host.cluster.image.offset - 1
    host.queue.activate(host.cluster.image, 2, host.quorum.high_watermark)
    host.told.clear()
    host.submit(replace(host.block(), broker_epoch=-1), "read")
    _told_uncommitted(host)


def leadership_is_lost_and_won(seed: int) -> None:
    """Lose leadership with uncommitted changes to another leader, and then win it again."""
    host = Host()
    host.queue.submit(host.block())
    committed = host.cluster.image
    host.quorum.truncate()
    host.queue.deactivate()
    host.queue.activate(committed, 3, host.quorum.high_watermark)
    image = host.queue.image
    require("M1", image is not None and digest(image) == digest(committed), "what was never committed is in the image")
