"""Everything but crashes that goes wrong in a run: links, clocks, disks and frozen processes, one thing after the other
beside the crashes. Which kinds a run has is drawn by its seed (swarm testing).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from kraft.sim.cluster.faults import Nemesis, between
from kraft.sim.cluster.shape import host_name

CUT_MS = (100, 3_000)
PAUSE_MS = (100, 6_000)
DISK_MS = (50, 1_500)
SLOW_DISK_MS = 800
STALL_MS = (50, 4_000)
CLOCK_STEP_MS = 60_000
BACK_MS = (50, 1_000)
STUMBLE_MS = (0, 250)
FLAP_WAIT_MS = 1_000

NETWORK_KINDS = ("reset", "clock", "cut", "cut one way", "isolate")
OTHER_KINDS = ("stall", "pause", "slow disk", "full disk", "failing sync", "empty disk", "stumble", "flap")
DIRECTORY = "failing directory"
"""One log directory of a broker is out of reach: only where brokers have several."""
BLACKOUT = "blackout"
"""All nodes lose power at once: only where every acknowledged record is on the device."""


class Disturbances:
    """Carries out up to `count_max` of them, of `kinds`, over a time. Each puts off the nemesis's calm until it is
    over."""

    def __init__(self, nemesis: Nemesis, kinds: tuple[str, ...], count_max: int, duration_ms: int) -> None:
        self.met: dict[str, int] = {}
        """How often each kind happened."""
        self._nemesis = nemesis
        self._cluster = nemesis.cluster
        self._world = nemesis.cluster.world
        self._random = self._world.random.stream("network faults")
        self._kinds = kinds
        self._count_max = count_max
        self._duration_ms = duration_ms
        self._verbs: Mapping[str, Callable[[int, int], Awaitable[bool]]] = {
            "reset": self._reset,
            "clock": self._step_clock,
            "cut": self._cut,
            "cut one way": self._cut_one_way,
            "isolate": self._isolate,
            "stall": self._stall,
            "pause": self._pause,
            "slow disk": self._slow_disk,
            "full disk": self._fill_disk,
            "failing sync": self._fail_syncs,
            "empty disk": self._empty_disk,
            "stumble": self._stumble,
            "flap": self._flap,
            DIRECTORY: self._fail_directory,
            BLACKOUT: self._black_out,
        }

    async def run(self, number_of_stream: int = 0) -> None:
        """One after the other. Several streams may go on side by side."""
        random, nemesis = self._random, self._nemesis
        if number_of_stream:
            random = self._world.random.stream(f"network faults {number_of_stream}")
        count = random.below(self._count_max + 1)
        times = sorted(random.below(self._duration_ms) for _ in range(count))
        start_ms = nemesis.now_ms
        nodes = self._cluster.shape.node_ids
        for at_ms in times:
            await self._world.sleep_ms(max(0, start_ms + at_ms - nemesis.now_ms))
            one = nodes[random.below(len(nodes))]
            other = [node for node in nodes if node != one][random.below(len(nodes) - 1)]
            kind = self._kinds[random.below(len(self._kinds))]
            if await self._verbs[kind](one, other):
                self.met[kind] = self.met.get(kind, 0) + 1

    def heal(self) -> None:
        """End everything that lasts."""
        self._world.heal_all()
        for node in self._cluster.shape.node_ids:
            name = host_name(node)
            self._world.resume(name)
            self._world.disk_full(name, False)
            self._world.sync_fails(name, False)
            self._world.slow_disk(name, 0)
            self._world.fail_directory(name, None)
        self._cluster.excused.clear()
        for node in sorted(self._cluster.hampered):
            self._cluster.crash(node, lose_power=False, is_noticed=False)
        self._cluster.hampered.clear()

    def _draw(self, limits: tuple[int, int]) -> int:
        return between(self._random, *limits)

    async def _last(self, text: str, duration_ms: int) -> None:
        """Something goes on for so long."""
        nemesis = self._nemesis
        nemesis.note(f"{text} for {duration_ms} ms")
        nemesis.disturbed_ms = nemesis.now_ms + duration_ms
        nemesis.calm_since_ms = max(nemesis.calm_since_ms, nemesis.now_ms + duration_ms)
        await self._world.sleep_ms(duration_ms)

    # links and clocks

    async def _reset(self, one: int, other: int) -> bool:
        self._nemesis.note(f"links between {one} and {other} are reset")
        self._nemesis.calm_since_ms = max(self._nemesis.calm_since_ms, self._nemesis.now_ms)
        self._world.reset_links(host_name(one), host_name(other))
        return True

    async def _step_clock(self, one: int, other: int) -> bool:
        step_ms = self._random.below(2 * CLOCK_STEP_MS) - CLOCK_STEP_MS
        self._nemesis.note(f"the wall clock of {one} steps by {step_ms} ms")
        self._world.jump_clock(host_name(one), step_ms)
        return True

    async def _cut(self, one: int, other: int) -> bool:
        self._world.partition(host_name(one), host_name(other))
        return await self._until_healed(f"cut between {one} and {other}")

    async def _cut_one_way(self, one: int, other: int) -> bool:
        self._world.partition_one_way(host_name(one), host_name(other))
        return await self._until_healed(f"cut from {one} to {other}")

    async def _isolate(self, one: int, other: int) -> bool:
        self._world.isolate(host_name(one))
        return await self._until_healed(f"node {one} is isolated")

    async def _until_healed(self, text: str) -> bool:
        await self._last(text, self._draw(CUT_MS))
        self._world.heal_all()
        return True

    async def _stall(self, one: int, other: int) -> bool:
        duration_ms = self._draw(STALL_MS)
        self._world.stall_links(host_name(one), host_name(other), duration_ms)
        await self._last(f"some connections from {one} to {other} stall", duration_ms)
        return True

    # processes and disks

    async def _pause(self, one: int, other: int) -> bool:
        if not self._cluster.is_running(one):
            return False
        self._world.pause(host_name(one))
        await self._last(f"node {one} is frozen", self._draw(PAUSE_MS))
        self._world.resume(host_name(one))
        return True

    async def _slow_disk(self, one: int, other: int) -> bool:
        self._world.slow_disk(host_name(one), SLOW_DISK_MS)
        await self._last(f"the disk of {one} is slow", self._draw(CUT_MS))
        self._world.slow_disk(host_name(one), 0)
        return True

    async def _fill_disk(self, one: int, other: int) -> bool:
        """The node may stop, or take its log directory offline; it is started anew when there is room again."""
        if not self._nemesis.may_crash(one):
            return False
        self._cluster.excused.add(one)
        self._world.disk_full(host_name(one), True)
        await self._last(f"the disk of {one} is full", self._draw(DISK_MS))
        self._world.disk_full(host_name(one), False)
        await self._start_anew(one, lose_power=False)
        return True

    async def _fail_syncs(self, one: int, other: int) -> bool:
        """What the node believed to be synced may be lost when the power goes, as it does afterwards."""
        if not (self._nemesis.may_crash(one) and self._nemesis.may_lose_power(one)):
            return False
        self._cluster.excused.add(one)
        self._world.sync_fails(host_name(one), True)
        await self._last(f"syncs of {one} fail", self._draw(DISK_MS))
        self._world.sync_fails(host_name(one), False)
        await self._start_anew(one, lose_power=True)
        return True

    async def _fail_directory(self, one: int, other: int) -> bool:
        """The last directory, which has no metadata log: the broker must go on without it. It is started anew after."""
        if one not in self._cluster.shape.broker_ids or not self._nemesis.may_crash(one):
            return False
        path = self._cluster.shape.log_dirs_of(one)[-1]
        self._cluster.hampered.add(one)
        self._world.fail_directory(host_name(one), path)
        await self._last(f"directory {path} of {one} fails", self._draw(CUT_MS))
        self._world.fail_directory(host_name(one), None)
        if one in self._cluster.hampered:
            await self._nemesis.crash(one, lose_power=False, pause_ms=self._draw(BACK_MS))
            self._cluster.hampered.discard(one)
        return True

    async def _start_anew(self, node: int, *, lose_power: bool) -> None:
        await self._nemesis.crash(node, lose_power=lose_power, pause_ms=self._draw(BACK_MS))
        self._cluster.excused.discard(node)

    async def _empty_disk(self, one: int, other: int) -> bool:
        """Of a broker: voters that are set by configuration may not come back with nothing."""
        allowed = one in self._cluster.shape.broker_ids and self._nemesis.may_crash(one)
        if not allowed or self._cluster.watch.suite.damage.anyone():
            return False
        await self._nemesis.crash(one, lose_power=False, pause_ms=self._draw(BACK_MS), wipe=True)
        return True

    async def _stumble(self, one: int, other: int) -> bool:
        """Killed again while it starts, some times."""
        for _ in range(1 + self._random.below(3)):
            if not self._nemesis.may_crash(one):
                return False
            await self._nemesis.crash(one, lose_power=False, pause_ms=self._draw(STUMBLE_MS))
            await self._world.sleep_ms(self._draw(STUMBLE_MS))
        return True

    async def _flap(self, one: int, other: int) -> bool:
        """The active controller, or the leader of a partition, dies between an append and its commit."""
        find = self._controller_with_news if self._random.below(2) else self._leader_with_news
        if not await self._cluster.wait_until(lambda: find() is not None, FLAP_WAIT_MS, poll_ms=1):
            return False
        victim = find()
        if victim is None or not self._nemesis.may_crash(victim):
            return False
        lose_power = bool(self._random.below(2)) and self._nemesis.may_lose_power(victim)
        await self._nemesis.crash(victim, lose_power=lose_power, pause_ms=self._draw(STUMBLE_MS))
        return True

    def _controller_with_news(self) -> int | None:
        """The active controller, if something of its log is not committed."""
        active = self._cluster.watch.active_controller
        eye = self._cluster.watch.nodes.get(active or 0)
        raft = None if eye is None else eye.node.quorum.replica
        is_behind = raft is not None and raft.log.end_offset > (raft.high_watermark or 0)
        return active if is_behind else None

    def _leader_with_news(self) -> int | None:
        """The leader of a partition in which something is not committed."""
        for topic in self._cluster.image.topics:
            for index, state in topic.partitions():
                marks = self._cluster.marks(state.leader, topic.name, index)
                if marks is not None and marks[0] < marks[1]:
                    return state.leader
        return None

    async def _black_out(self, one: int, other: int) -> bool:
        nemesis, cluster = self._nemesis, self._cluster
        pause_ms = self._draw(BACK_MS)
        nemesis.note(f"all nodes lose power, back after {pause_ms} ms")
        for node in cluster.shape.node_ids:
            if cluster.is_running(node):
                cluster.crash(node, lose_power=True, is_noticed=False)
        await self._world.sleep_ms(pause_ms)
        for node in cluster.down:
            cluster.start(node)
        nemesis.calm_since_ms = max(nemesis.calm_since_ms, nemesis.now_ms)
        return True
