"""SimulatedCluster: a user's trio application, run against a whole cluster in one process, under virtual time and one
seed.

    with SimulatedCluster(seed=7) as cluster:
        cluster.run(main)      # async def main(): async with Producer(bootstrap_servers=cluster.bootstrap_servers) ...

The nodes run the production code; hosts, network, disks and clocks are simulated. The same seed gives the same run,
event for event, as long as the application takes time and randomness from trio, the client, or Python's own modules
(see `simulated_stdlib`). Methods take effect at once, and their consequences happen while virtual time passes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from types import TracebackType
from typing import ClassVar, Self, TypeVar, TypeVarTuple, Unpack

import kio.index  # noqa: F401 - it imports hypothesis where there is one, which must not happen within a run
import trio

from kraft.client import KafkaError
from kraft.seam import DiskError, current_seam
from kraft.sim.breakable_cluster import FoundPartition
from kraft.sim.cluster.findings import Report
from kraft.sim.cluster.shape import host_name, node_of
from kraft.sim.link_meter import LinkMeter
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.on_clusters import EVERYWHERE, ROLES_EVERYWHERE, FaultRun
from kraft.sim.nemesis.partition_shapes import CLIENTS, end_of
from kraft.sim.prepared_topics import AwaitedTopics
from kraft.sim.random_faults import KINDS, random_faults
from kraft.sim.shapes import THREE_AND_THREE, ClusterError, Setting, shape_of
from kraft.sim.simulated_nodes import NodesState, SimulatedNodes
from kraft.sim.simulated_stdlib import simulated_stdlib
from kraft.sim.strayed_dials import StrayedDials
from kraft.sim.world.disk import FREE_BYTES
from kraft.sim.world.options import WorldOptions
from kraft.sim.world.world import World
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ReplyRule

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

APPLICATION = "application"
"""The host on which the code under test runs."""
RUN_SECONDS_MAX = 600.0
WAIT_SECONDS_MAX = 60.0
LOG_LINES_SHOWN = 30
POLL_MS = 5
SLOW_DISK_MS = 800

_open: SimulatedCluster | None = None


class SimulatedCluster(AwaitedTopics):
    """A simulated cluster for an application under test; see the module. `seed` decides everything. The default shape
    is three controllers and three brokers. `settings` apply to every node (`server.properties`). With `dynamic_voters`
    the voters of the quorum are not configured and may change. `options` describe the network and the disks."""

    fault_kinds: ClassVar[tuple[str, ...]] = (
        *EVERYWHERE,
        plan.POWER_LOSS,
        "clock",
        "stall",
        "slow disk",
        "full disk",
        "failing sync",
        plan.EMPTY_DISK,
        plan.CLIENTS_CUT,
    )
    fault_roles: ClassVar[tuple[str, ...]] = (*ROLES_EVERYWHERE, plan.UNCOMMITTED_CONTROLLER)

    def __init__(
        self,
        *,
        seed: int,
        controllers: int | None = None,
        brokers: int | None = None,
        combined: int | None = None,
        settings: Mapping[str, Setting] | None = None,
        dynamic_voters: bool = False,
        options: WorldOptions | None = None,
    ) -> None:
        shape = shape_of(controllers, brokers, combined, settings, default=THREE_AND_THREE)
        super().__init__(replace(shape, dynamic_voters=dynamic_voters))
        self.seed = seed
        self._world = World(seed, options)
        self._report = Report(lambda: self._world.now_ns // 1_000_000)
        self._report.is_excused = lambda node: True
        self._report.is_judged = lambda node: node_of(node) is not None
        self._report.when_found = lambda finding: self._end_main()
        self._strayed = StrayedDials(APPLICATION, self.shape)
        self._meter = LinkMeter(self._strayed)
        self._world.watch(self._meter)
        self._nodes = SimulatedNodes(self._world, self.shape, self._failed)
        self._scope: trio.CancelScope | None = None
        self._failure: tuple[int, BaseException] | None = None
        self._failing_disks: set[int] = set()
        """Nodes whose disk fails because of a fault: they may stop because of it."""
        self._has_run = False

    def __enter__(self) -> Self:
        global _open
        if _open is not None:
            raise ClusterError(
                f"a simulated cluster (seed {_open.seed}) is open already, and worlds do not nest: "
                "end its block before you open another; one cluster may have any number of nodes"
            )
        _open = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _open
        _open = None

    # the run

    def run(
        self,
        main: Callable[[Unpack[Arguments]], Awaitable[Result]],
        *args: *Arguments,
        timeout_s: float = RUN_SECONDS_MAX,
    ) -> Result:
        """Start the nodes, wait until they serve, run `main(*args)` to its end, and return its result.

        Raises the exceptions of `main`. Raises ClusterError if a node stops because of an error or violates an
        invariant, or if `main` does not end within `timeout_s` virtual seconds."""
        self._require_startable()
        _require_function(main)
        self._has_run = True
        try:
            with self._report.listening():
                return self._world.run(lambda world: self._main(main, args, timeout_s))
        except Exception as error:
            error.add_note(f"seed {self.seed}, {self.now_s:.3f} virtual seconds after the start")
            if self._report.findings and not isinstance(error, ClusterError):
                error.add_note(self._broken)
            if told := str(self._strayed):
                error.add_note(told)
            raise
        finally:
            self._scope = None

    def _require_startable(self) -> None:
        if _open is not self:
            raise ClusterError("open the cluster first: with SimulatedCluster(seed=…) as cluster: cluster.run(main)")
        if self._has_run:
            raise ClusterError(f"a simulated cluster runs once; SimulatedCluster(seed={self.seed}) begins it anew")
        if _is_in_trio():
            raise ClusterError(
                "run() starts a trio run of its own: call it from a plain function (def test_…, not async def), "
                "and put what is to be simulated into main"
            )

    async def _main(self, main: Callable[..., Awaitable[Result]], args: Sequence[object], timeout_s: float) -> Result:
        with trio.CancelScope() as self._scope:
            for node in self.node_ids:
                self._nodes.start(node)
            await self.wait_ready()
            seam = self._world.node(APPLICATION)
            current_seam.set(seam)
            with simulated_stdlib(seam.clock, self.seed):
                self._scope.deadline = trio.current_time() + timeout_s
                result = await _awaitable(main, main(*args))
        if self._failure is not None:
            node, error = self._failure
            raise ClusterError(f"node {node} stopped on its own: {error!r}") from error
        if self._report.findings:
            raise ClusterError(self._broken)
        if self._scope.cancelled_caught:
            raise ClusterError(f"main has not ended within {timeout_s:g} virtual seconds")
        return result

    @property
    def _broken(self) -> str:
        """Describe the first failure, and the events before it."""
        return f"an invariant broke: {self._report.findings[0]}\n{self.describe()}"

    def _failed(self, node: int, error: BaseException) -> None:
        if node in self._failing_disks and isinstance(error, DiskError):
            return
        self._failure = self._failure or (node, error)
        self._end_main()

    def _end_main(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    # within a run

    @property
    def bootstrap_servers(self) -> str:
        return self.shape.bootstrap_servers

    @property
    def now_s(self) -> float:
        """Virtual seconds since the nodes were started."""
        return self._world.now_ns / 1e9

    @property
    def now_ns(self) -> int:
        """Virtual nanoseconds since the nodes were started."""
        return self._world.now_ns

    @property
    def trace_hash(self) -> str:
        """Hash of all events so far: equal for two identical runs."""
        return self._world.trace_hash

    def describe(self) -> str:
        """Return seed, time, and the last log lines of the nodes."""
        head = f"seed {self.seed}, {self.now_s:.3f} virtual seconds; the nodes logged last:"
        return "\n".join([head, *list(self._report.log_lines)[-LOG_LINES_SHOWN:]])

    async def wait_until(self, condition: Callable[[], object], *, timeout_s: float = WAIT_SECONDS_MAX) -> None:
        """Let virtual time pass until the condition holds. ClusterError if it does not in time."""
        with trio.move_on_after(timeout_s):
            while not condition():
                await self._world.sleep_ms(POLL_MS)
            return
        raise ClusterError(f"what was waited for did not come within {timeout_s:g} virtual seconds")

    async def wait_ready(self, *, timeout_s: float = WAIT_SECONDS_MAX) -> None:
        """Wait until every node runs and every replica is in sync. ClusterError says what is missing."""
        try:
            await self.wait_until(lambda: not self._nodes.trouble(), timeout_s=timeout_s)
        except ClusterError:
            text = f"the cluster is not whole after {timeout_s:g} virtual seconds: {self._nodes.trouble()}"
            raise ClusterError(text) from None

    def lose_power(self, node: int) -> None:
        """Cut the power of a node's host: other hosts receive nothing from it, and what its disk had not synced is lost
        or torn."""
        self._require(node, running=True)
        self._leave(node)
        self._world.power_off(host_name(node))

    def random_faults(
        self, kinds: Sequence[str] = KINDS, *, pause_s: float = 2.0, lasting_s: float = 3.0
    ) -> AbstractAsyncContextManager[None]:
        """During the block, inject random faults, one at a time; the seed decides nodes, kinds and times. Each lasts up
        to `lasting_s`. The next begins up to `pause_s` after the cluster is healthy again, so no acknowledged record
        may be lost. At the end of the block links are healed, and all nodes are resumed or started."""
        return random_faults(self, self._world.random.stream("random faults"), kinds, pause_s, lasting_s)

    async def carry_out(self, faults: Iterable[plan.Fault]) -> list[str]:
        """Inject these faults, each at its time counted from now, until the last is over. Return what was done, line by
        line. ClusterError names a fault that is impossible here. All faults end with this call, however it ends."""
        self._require_run()
        run = FaultRun(self, faults, lambda: self._world.now_ns // 1_000_000)
        with closing(run.steps()) as steps:
            for at_ms in steps:
                await self._world.sleep_until_ns(at_ms * 1_000_000)  # a cancellation here ends the active faults
        return run.history

    async def rolling_restart(self, *, back_ms: int = 0) -> list[str]:
        """Restart each node cleanly in turn, with `back_ms` downtime; the next node follows when every replica is in
        sync. Return line by line what was done."""
        return await self.carry_out([plan.Fault(at_ms=0, kind=plan.ROLLING, back_ms=back_ms)])

    def holders(self, role: str) -> list[int]:
        self._require_run()
        if role == plan.UNCOMMITTED_CONTROLLER:
            return self._nodes.uncommitted_controller()
        return super().holders(role)

    def begin_fault(self, fault: plan.Fault) -> Callable[[], None] | None:
        world, name = self._world, host_name(fault.node)
        if fault.kind == plan.POWER_LOSS:
            self.lose_power(fault.node)
        elif fault.kind == "clock":
            world.jump_clock(name, fault.amount)
        elif fault.kind == "slow disk":
            if world.host(name).disk_extra_ns:
                return None
            world.slow_disk(name, SLOW_DISK_MS)
            return lambda: world.slow_disk(name, 0)
        elif fault.kind in ("full disk", "failing sync"):
            return self._fail_disk(fault.node, world.disk_full if fault.kind == "full disk" else world.sync_fails)
        elif fault.kind == plan.EMPTY_DISK:
            if not self._may_be_wiped(fault.node):
                return None
            self.kill(fault.node)
            self._nodes.wipe(fault.node)
        elif fault.kind == "reset":
            world.reset_links(*_hosts_of(fault))
        elif fault.kind == "stall":
            world.stall_links(*_hosts_of(fault), fault.duration_ms)
        else:
            return super().begin_fault(fault)
        return lambda: None

    def _fail_disk(self, node: int, switch: Callable[[str, bool], None]) -> Callable[[], None] | None:
        """Let the disk of a node fail. If the node stops because of it, it is started when its disk works again. If it
        has not stopped, it is killed first, because it may never retry what it could not write."""
        if node in self._failing_disks:
            return None
        self._failing_disks.add(node)
        switch(host_name(node), True)

        def end() -> None:
            switch(host_name(node), False)
            self._failing_disks.discard(node)
            if self.is_running(node):
                self.kill(node)
            self.start(node, until_ready=False)

        return end

    def _may_be_wiped(self, node: int) -> bool:
        """Return whether a node may lose its disk. A controller may only if it returns as a new voter, which replaces
        the earlier one."""
        return node not in self.controller_ids or self.shape.joins_by_itself

    def state(self) -> NodesState:
        """Return what the nodes know at this moment, combined over all running nodes."""
        self._require_run()
        return self._nodes.state()

    def facts(self) -> dict[str, float]:
        """Return measurements by name, of links (see LinkMeter) and of each node N: "starts N", "free bytes N", "slow
        syncs N" (disk accesses that were made slower), "clock offset ms N"."""
        found: dict[str, float] = dict(self._meter.counts)
        for node in self.node_ids:
            host = self._world.host(host_name(node))
            found[f"starts {node}"] = host.lives
            found[f"free bytes {node}"] = 0 if host.disk_full else FREE_BYTES
            found[f"slow syncs {node}"] = host.slowed_visits
            found[f"clock offset ms {node}"] = host.clock.wall_offset_ms
        return found

    def active_controller(self) -> int | None:
        self._require_run()
        return self._nodes.active_controller()

    # primitives

    def _require_run(self) -> None:
        if self._scope is None:
            raise ClusterError("the nodes of a simulated cluster live within run(main): call this from there")

    def _require(self, node: int, *, running: bool | None = None) -> None:
        self._require_run()
        super()._require(node, running=running)

    def _kill(self, node: int) -> None:
        self._world.kill(host_name(node))

    def _stop(self, node: int) -> None:
        self._nodes.request_stop(node)

    def _wait_ended(self, node: int) -> None:
        """Do nothing: no method waits here, since virtual time stands still during a call."""

    def _start(self, node: int) -> None:
        self._nodes.start(node)

    def _wait_ready(self, node: int) -> None:
        """Do nothing: no method waits here, since virtual time stands still during a call."""

    def _follow_start(self, node: int) -> bool:
        is_cut_off = any(node in link and CLIENTS not in link for link in self._cuts)
        return is_cut_off or not self._nodes.is_running(node) or self._nodes.serves(node)

    def _pause(self, node: int) -> None:
        self._world.pause(host_name(node))

    def _resume(self, node: int) -> None:
        self._world.resume(host_name(node))

    def _is_running(self, node: int) -> bool:
        return self._nodes.is_running(node)

    def _is_paused(self, node: int) -> bool:
        return self._world.is_paused(host_name(node))

    def _cut_links(self) -> None:
        for one in (CLIENTS, *self.node_ids):
            for other in (CLIENTS, *self.node_ids):
                here, there = _host_of(one), _host_of(other)
                wanted = (one, other) in self._cuts
                if wanted is not self._world.is_cut(here, there):
                    (self._world.partition_one_way if wanted else self._world.heal_one_way)(here, there)
                quality = self._qualities.get((one, other))
                if quality is not self._world.link_quality(here, there):
                    self._world.set_link_quality(here, there, quality)

    def _add_rule(self, node: int, rule: ReplyRule) -> int:
        return self._nodes.replies[node].add(rule)

    def _remove_rule(self, node: int, number: int) -> None:
        self._nodes.replies[node].remove(number)

    def _applied(self, node: int, number: int) -> int:
        return self._nodes.replies[node].applied[number]

    def _partitions(self) -> list[FoundPartition]:
        image = self._nodes.image
        states = [] if image is None else [state for topic in image.topics for _, state in topic.partitions()]
        return [
            FoundPartition(state.leader if state.leader >= 0 else None, state.isr, state.replicas) for state in states
        ]

    def _find(self, topic: str, partition: int) -> tuple[int | None, Sequence[int]]:
        self._require_run()
        state = self._nodes.find(topic, partition)
        if state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{partition}")
        return (None if state.leader < 0 else state.leader), state.isr


def _host_of(node: int) -> str:
    return APPLICATION if node == CLIENTS else host_name(node)


def _hosts_of(fault: plan.Fault) -> tuple[str, str]:
    """Return the hosts at the ends of a link."""
    return _host_of(end_of(fault.node)), _host_of(end_of(fault.other))


def _is_in_trio() -> bool:
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def _awaitable(main: Callable[..., object], given: Awaitable[Result]) -> Awaitable[Result]:
    if not inspect.isawaitable(given):
        raise ClusterError(f"run(main) awaits what main gives: {main!r} must be an async function")
    return given


def _require_function(main: object) -> None:
    if not callable(main):
        if inspect.iscoroutine(main):
            main.close()  # otherwise Python warns that it was never awaited
        raise ClusterError(f"run(main, *args) calls main itself: give the async function, and not {main!r}")
