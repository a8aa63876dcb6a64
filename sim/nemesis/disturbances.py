"""Carries out the faults of a plan other than crashes: faults of links, clocks and disks, and frozen processes.

A plan's faults are divided into lanes: the faults of a lane happen one after the other, those of different lanes in
parallel. A fault is skipped if the fault budget does not allow it at its time (`Nemesis.may_crash`), or if another lane
already affects the same node or link. Each fault ends only what it began.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace

import trio

from kraft.sim.cluster.chronicle import ObservedFault
from kraft.sim.cluster.shape import host_name
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.faults import MOMENT_MS_MAX, MOMENT_POLL_MS, Nemesis
from kraft.sim.nemesis.partition_shapes import CLIENTS, pairs_of, words_of
from kraft.sim.nemesis.plan import Fault
from kraft.sim.nemesis.worn_disks import WornDisks

SLOW_DISK_MS = 800
FLAP_WAIT_MS = 1_000

Verb = Callable[[Fault], Awaitable[str]]
"""Function that carries out a fault and returns its kind, or "" if the fault was skipped."""


class Disturbances:
    """Carries out `faults`. While a fault other than a crash is active, the fault injector (Nemesis) does not count the
    cluster as calm."""

    def __init__(
        self, nemesis: Nemesis, faults: Iterable[Fault], client_hosts: Iterable[str] = plan.CLIENT_HOSTS
    ) -> None:
        """Prepare the faults. `client_hosts` are the hosts of the run's clients."""
        self.met: dict[str, int] = {}
        """Kind → number of faults that were carried out."""
        self.come_across: dict[str, int] = {}
        """Kind of disk fault → number of faults that some node or reader noticed."""
        self._nemesis = nemesis
        self._cluster = nemesis.cluster
        self._world = nemesis.cluster.world
        self._client_hosts = tuple(client_hosts)
        self._worn = WornDisks(nemesis)
        self._lanes: dict[int, list[Fault]] = {}
        self._cuts: set[frozenset[str]] = set()
        """Pairs of hosts between which something is cut."""
        self._degraded: set[tuple[str, str]] = set()
        """Links that are slow or lossy."""
        self._under_way: set[tuple[str, int]] = set()
        """(kind, node) of the faults in progress whose kind a node can have only once at a time."""
        for fault in faults:
            if not plan.allows(nemesis.cluster.shape, fault.kind):
                continue
            self._lanes.setdefault(fault.lane, []).append(fault)
        self._verbs: Mapping[str, Verb] = {
            plan.KILL: nemesis.crash_one,
            plan.POWER_LOSS: nemesis.crash_one,
            plan.CLEAN_STOP: nemesis.stop_one,
            plan.ROLLING: nemesis.roll,
            "reset": self._reset,
            "clock": self._step_clock,
            "cut": self._cut,
            "cut one way": self._cut_one_way,
            "isolate": self._isolate,
            **dict.fromkeys(plan.SHAPE_KINDS, self._partition),
            **dict.fromkeys(plan.QUALITY_KINDS, self._degrade),
            "stall": self._stall,
            "pause": self._pause,
            "slow disk": self._slow_disk,
            "full disk": self._fill_disk,
            "failing sync": self._fail_syncs,
            "empty disk": self._empty_disk,
            "stumble": self._stumble,
            "flap": self._flap,
            plan.DIRECTORY: self._fail_directory,
            **dict.fromkeys(plan.ROT_KINDS, self._corrupt_log),
            plan.READ_ERROR: self._fail_reads,
            plan.BLACKOUT: self._black_out,
        }

    async def run(self) -> None:
        """Carry out the faults of all lanes, and return when the last fault has ended."""
        start_ms = self._nemesis.now_ms
        async with trio.open_nursery() as nursery:
            for lane in self._lanes.values():
                nursery.start_soon(self._carry_out, lane, start_ms)

    async def _carry_out(self, lane: list[Fault], start_ms: int) -> None:
        for fault in lane:
            await self._world.sleep_ms(max(0, start_ms + fault.at_ms - self._nemesis.now_ms))
            kind = await self._verbs[fault.kind](fault)
            if kind:
                self.met[kind] = self.met.get(kind, 0) + 1

    def heal(self) -> None:
        """End all faults in progress."""
        self._world.heal_all()
        for node in self._cluster.shape.node_ids:
            name = host_name(node)
            self._world.resume(name)
            self._world.disk_full(name, False)
            self._world.sync_fails(name, False)
            self._world.slow_disk(name, 0)
            self._world.fail_directory(name, None)
            self._world.fail_reads(name, None)
        self._cluster.excused.clear()
        for node in sorted(self._cluster.missing_directory):
            if self._cluster.is_running(node):
                self._cluster.crash(node, lose_power=False, is_noticed=False)
        self._cluster.missing_directory.clear()

    async def _last(self, fault: Fault, text: str, nodes: tuple[int, ...]) -> ObservedFault:
        """Wait until the duration of a fault is over."""
        nemesis, duration_ms = self._nemesis, fault.duration_ms
        nemesis.calm_since_ms = max(nemesis.calm_since_ms, nemesis.now_ms + duration_ms)
        with nemesis.fault(fault.kind, nodes, f"{text} for {duration_ms} ms") as window:
            nemesis.disturbed_ms = max(nemesis.disturbed_ms, nemesis.now_ms + duration_ms)
            await self._world.sleep_ms(duration_ms)
        return window

    def _wear_ended(self, kind: str, windows: list[ObservedFault], *, is_met: bool) -> None:
        """Record the end of a fault that wears out a disk. If nothing noticed it, it counts as a fault
        without effect."""
        for window in windows:
            window.is_met = is_met
        if is_met:
            self.come_across[kind] = self.come_across.get(kind, 0) + 1

    # links and clocks

    async def _reset(self, fault: Fault) -> str:
        self._nemesis.calm_since_ms = max(self._nemesis.calm_since_ms, self._nemesis.now_ms)
        with self._nemesis.fault(fault.kind, _link(fault), f"links between {fault.node} and {fault.other} are reset"):
            self._world.reset_links(host_name(fault.node), host_name(fault.other))
        return fault.kind

    async def _step_clock(self, fault: Fault) -> str:
        text = f"the wall clock of {fault.node} steps by {fault.amount} ms"
        with self._nemesis.fault(fault.kind, (fault.node,), text):
            self._world.jump_clock(host_name(fault.node), fault.amount)
        return fault.kind

    async def _cut(self, fault: Fault) -> str:
        text, link = f"cut between {fault.node} and {fault.other}", (host_name(fault.node), host_name(fault.other))
        return await self._cut_off(fault, self._world.partition, [link], text, _link(fault))

    async def _cut_one_way(self, fault: Fault) -> str:
        text, link = f"cut from {fault.node} to {fault.other}", (host_name(fault.node), host_name(fault.other))
        return await self._cut_off(fault, self._world.partition_one_way, [link], text, _link(fault))

    async def _isolate(self, fault: Fault) -> str:
        nodes = [host_name(node) for node in self._cluster.shape.node_ids if node != fault.node]
        links = [(host_name(fault.node), other) for other in (*nodes, *self._client_hosts)]
        return await self._cut_off(fault, self._world.partition, links, f"node {fault.node} is isolated", (fault.node,))

    async def _partition(self, fault: Fault) -> str:
        shape = self._cluster.shape
        links: list[tuple[str, str]] = []
        for one, other in pairs_of(fault, shape):
            here = self._client_hosts if one == CLIENTS else (host_name(one),)
            links += [(name, host_name(other)) for name in here]
        nodes = (fault.node,) if fault.node else shape.node_ids
        return await self._cut_off(fault, self._world.partition, links, words_of(fault, shape), nodes)

    async def _cut_off(
        self,
        fault: Fault,
        cut: Callable[[str, str], None],
        links: list[tuple[str, str]],
        text: str,
        nodes: tuple[int, ...],
    ) -> str:
        """Cut these links for the duration of the fault."""
        pairs = {frozenset(link) for link in links}
        if pairs & self._cuts:
            return ""
        self._cuts |= pairs
        for link in links:
            cut(*link)
        await self._last(fault, text, nodes)
        for link in links:
            self._world.heal(*link)
        self._cuts -= pairs
        return fault.kind

    async def _degrade(self, fault: Fault) -> str:
        link = (host_name(fault.node), host_name(fault.other))
        if link in self._degraded:
            return ""
        self._degraded.add(link)
        self._world.set_link_quality(*link, fault.quality)
        await self._last(fault, f"what {fault.node} sends to {fault.other} {fault.quality_words}", _link(fault))
        self._world.set_link_quality(*link, None)
        self._degraded.discard(link)
        return fault.kind

    async def _stall(self, fault: Fault) -> str:
        self._world.stall_links(host_name(fault.node), host_name(fault.other), fault.duration_ms)
        await self._last(fault, f"some connections from {fault.node} to {fault.other} stall", _link(fault))
        return fault.kind

    # processes and disks

    async def _pause(self, fault: Fault) -> str:
        if fault.role:
            fault = replace(fault, node=await self._holder(fault))
        node = fault.node
        if not node or not self._cluster.is_running(node) or (fault.kind, node) in self._under_way:
            return ""
        self._world.pause(host_name(node))
        await self._last_alone(fault, f"node {node} is frozen")
        self._world.resume(host_name(node))
        return fault.kind

    async def _holder(self, fault: Fault) -> int:
        """Wait, up to a maximum, until a node has the fault's role. Return the node, or 0 if there is none."""
        targets = self._nemesis.targets
        await self._cluster.wait_until(lambda: bool(targets.holders(fault.role)), MOMENT_MS_MAX, poll_ms=MOMENT_POLL_MS)
        found = targets.holders(fault.role)
        if found:
            self._nemesis.moments.update([fault.role])
        return found[fault.pick % len(found)] if found else 0

    async def _slow_disk(self, fault: Fault) -> str:
        if (fault.kind, fault.node) in self._under_way:
            return ""
        self._world.slow_disk(host_name(fault.node), SLOW_DISK_MS)
        await self._last_alone(fault, f"the disk of {fault.node} is slow")
        self._world.slow_disk(host_name(fault.node), 0)
        return fault.kind

    async def _last_alone(self, fault: Fault, text: str) -> None:
        """Keep a fault active for its duration, and prevent a second fault of its kind on this node meanwhile."""
        self._under_way.add((fault.kind, fault.node))
        await self._last(fault, text, (fault.node,))
        self._under_way.discard((fault.kind, fault.node))

    async def _fill_disk(self, fault: Fault) -> str:
        """Fill the disk of a node. The node may stop, or take its log directory offline; it is restarted when the disk
        has room again."""
        node = fault.node
        if not self._nemesis.may_crash(node):
            return ""
        self._cluster.excused.add(node)
        self._world.disk_full(host_name(node), True)
        await self._last(fault, f"the disk of {node} is full", (node,))
        self._world.disk_full(host_name(node), False)
        await self._restart_broker(fault, lose_power=False)
        return fault.kind

    async def _fail_syncs(self, fault: Fault) -> str:
        """Let the syncs of a node fail. Records that the node considers synced may be lost in a power loss, so the
        fault ends with a power loss."""
        node = fault.node
        if not (self._nemesis.may_crash(node) and self._nemesis.may_lose_power(node)):
            return ""
        self._cluster.excused.add(node)
        self._world.sync_fails(host_name(node), True)
        await self._last(fault, f"syncs of {node} fail", (node,))
        self._world.sync_fails(host_name(node), False)
        await self._restart_broker(fault, lose_power=True)
        return fault.kind

    async def _fail_directory(self, fault: Fault) -> str:
        """Let the last log directory of a broker fail, which has no metadata log. The broker must keep running without
        it, and is restarted afterwards."""
        node = fault.node
        if node not in self._cluster.shape.broker_ids or not self._nemesis.may_crash(node, with_logs=True):
            return ""
        path = self._cluster.shape.log_dirs_of(node)[-1]
        self._cluster.missing_directory.add(node)
        self._world.fail_directory(host_name(node), path)
        await self._last(fault, f"directory {path} of {node} fails", (node,))
        self._world.fail_directory(host_name(node), None)
        await self._nemesis.crash(node, fault.kind, lose_power=False, back_ms=fault.back_ms)
        self._cluster.missing_directory.discard(node)
        return fault.kind

    async def _fail_reads(self, fault: Fault) -> str:
        """Let all reads from the last log directory of a broker fail. A broker with several directories must keep
        running without it; others may stop. At the end the data can be read again, and the broker is restarted."""
        node, cluster = fault.node, self._cluster
        if node not in cluster.shape.broker_ids or not self._nemesis.may_crash(node, with_logs=True):
            return ""
        excused = cluster.missing_directory if cluster.shape.log_dirs > 1 else cluster.excused
        path = cluster.shape.log_dirs_of(node)[-1]
        excused.add(node)
        shown = self._worn.times_shown(node)
        self._world.fail_reads(host_name(node), path)
        window = await self._last(fault, f"reads from {path} of {node} fail", (node,))
        self._world.fail_reads(host_name(node), None)
        is_met = self._worn.times_shown(node) > shown
        crash = await self._nemesis.crash(node, fault.kind, lose_power=False, back_ms=fault.back_ms)
        self._wear_ended(fault.kind, [window, crash], is_met=is_met)
        excused.discard(node)
        return fault.kind

    async def _corrupt_log(self, fault: Fault) -> str:
        """Corrupt bytes of a log. They stay corrupt, whatever happens to the broker meanwhile, until the fault ends and
        the log is repaired."""
        corruption = self._worn.find(fault)
        if corruption is None:
            return ""
        shown = self._worn.times_shown(corruption.node, corruption.log)
        self._worn.begin(corruption)
        what = "rot" if fault.kind == plan.BIT_ROT else "are written over by others that were meant for elsewhere"
        topic, index = corruption.log
        text = f"{len(corruption.changes)} bytes of {topic}-{index} {what} on broker {corruption.node}"
        windows = [await self._last(fault, text, (corruption.node,)), *await self._worn.mend(corruption, fault)]
        self._wear_ended(fault.kind, windows, is_met=self._worn.times_shown(corruption.node, corruption.log) > shown)
        return fault.kind

    async def _restart_broker(self, fault: Fault, *, lose_power: bool) -> None:
        await self._nemesis.crash(fault.node, fault.kind, lose_power=lose_power, back_ms=fault.back_ms)
        self._cluster.excused.discard(fault.node)

    async def _empty_disk(self, fault: Fault) -> str:
        """Restart a node with an empty disk: a broker, or a voter whose new incarnation replaces the old one in the
        voter set. A configured voter may not return with an empty disk."""
        node, nemesis = fault.node, self._nemesis
        is_broker = node in self._cluster.shape.broker_ids
        if not (nemesis.may_crash(node) if is_broker else nemesis.may_lose_disk(node)):
            return ""
        if is_broker and self._cluster.watch.suite.damage.anyone():
            return ""
        await self._nemesis.crash(node, fault.kind, lose_power=False, back_ms=fault.back_ms, wipe=True)
        return fault.kind

    async def _stumble(self, fault: Fault) -> str:
        """Kill a node repeatedly while it starts."""
        for _ in range(fault.amount):
            if not self._nemesis.may_crash(fault.node):
                return ""
            await self._nemesis.crash(fault.node, fault.kind, lose_power=False, back_ms=fault.back_ms)
            await self._world.sleep_ms(fault.duration_ms)
        return fault.kind

    async def _flap(self, fault: Fault) -> str:
        """Kill the active controller, or the leader of a partition, between an append and its commit."""
        targets = self._nemesis.targets
        find = (
            targets.controller_with_uncommitted_record
            if fault.role == plan.ACTIVE_CONTROLLER
            else targets.leaders_with_uncommitted_records
        )
        if not await self._cluster.wait_until(lambda: find() is not None, FLAP_WAIT_MS, poll_ms=1):
            return ""
        victim = find()
        if victim is None or not self._nemesis.may_crash(victim):
            return ""
        lose_power = bool(fault.amount) and self._nemesis.may_lose_power(victim)
        await self._nemesis.crash(victim, fault.kind, lose_power=lose_power, back_ms=fault.back_ms)
        return fault.kind

    async def _black_out(self, fault: Fault) -> str:
        """Cut the power of all nodes at once. The fault is skipped while a log is corrupt.

        After such a blackout no replica is known to be complete. If the last known complete replica finds its log
        damaged, an operator must choose (docs/decisions/08-damaged-replicas.md)."""
        nemesis, cluster = self._nemesis, self._cluster
        if cluster.failing_disks or cluster.corrupt or nemesis.stopping:
            return ""
        text = f"all nodes lose power, back after {fault.back_ms} ms"
        with nemesis.fault(fault.kind, cluster.shape.node_ids, text):
            victims = [node for node in cluster.shape.node_ids if cluster.is_running(node)]
            for node in victims:
                cluster.crash(node, lose_power=True, is_noticed=False)
            await self._world.sleep_ms(fault.back_ms)
            for node in victims:
                if not cluster.is_running(node):
                    cluster.start(node)
        nemesis.calm_since_ms = max(nemesis.calm_since_ms, nemesis.now_ms)
        return fault.kind


def _link(fault: Fault) -> tuple[int, int]:
    return (fault.node, fault.other)
