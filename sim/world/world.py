"""The world: hosts, their network and their disks under virtual time, in one seeded trio run, and faults on demand.

    World(seed=7).run(main)      # async def main(world): world.start("broker-1", serve_it) ...

Every event follows from the seed: the same seed gives the same `trace_hash`, in any process. Nodes are identified by
name. Each has a separate host with a disk that outlives the node's processes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

import trio

from kraft.seam import DialMap, LinkPolicy, LinkQuality, Seam, current_seam, require, sole_error
from kraft.sim.world.chance import NamedRandom
from kraft.sim.world.clock import NodeClock
from kraft.sim.world.disk import FakeDisk
from kraft.sim.world.fabric import Fabric
from kraft.sim.world.host import Host
from kraft.sim.world.incarnation import Incarnation
from kraft.sim.world.network import FakeNetwork
from kraft.sim.world.observer import WorldObserver
from kraft.sim.world.options import WorldOptions
from kraft.sim.world.schedule import Schedule
from kraft.sim.world.trace import Trace
from kraft.sim.world.tripwires import deterministic_trio, quiet_collector, tripwires
from kraft.sim.world.watchdog import Watchdog

T = TypeVar("T")
NodeMain = Callable[[Seam], Awaitable[object]]
OnFailure = Callable[[str, BaseException], None]


class Deadlock(Exception):
    """Raised when no event can ever happen again and the main function still waits; the text names the tasks."""


class Livelock(Exception):
    """Raised when tasks run endlessly while virtual time stands still; the text names the tasks."""


@dataclass(slots=True)
class _StartArguments:
    """Arguments with which a node was started, so that `restart` can start it again."""

    main: NodeMain
    dial_map: DialMap
    on_failure: OnFailure | None


class World:
    """One simulated world and its run. `run` may be called once."""

    def __init__(self, seed: int, options: WorldOptions | None = None) -> None:
        self.seed = seed
        self.options = options or WorldOptions()
        self.random = NamedRandom(seed, "world")
        self._schedule = Schedule(self._deadlocked)
        self._trace = Trace(self.options.trace_lines)
        self._fabric = Fabric(self._schedule, NamedRandom(seed, "network"), self.options)
        self._hosts: dict[str, Host] = {}
        self._networks: dict[str, FakeNetwork] = {}
        self._plans: dict[str, _StartArguments] = {}
        self._nursery: trio.Nursery | None = None
        self._error: BaseException | None = None

    # the run

    def run(self, main: Callable[[World], Awaitable[T]]) -> T:
        """Run `main(world)` to its end under virtual time, then end every node; return the result of `main`.

        Raises the exception of `main`, or of a node that has no `on_failure`. Raises Deadlock or Livelock."""
        with deterministic_trio(self.seed), quiet_collector(), ExitStack() as wires:
            watchdog = Watchdog(self._schedule, self._livelocked)
            try:
                return trio.run(self._supervise, main, wires, clock=self._schedule, instruments=[watchdog])
            except BaseExceptionGroup as group:  # ctrl-C, in a nursery: callers expect it under its own name
                if group.subgroup(KeyboardInterrupt) is not None:
                    raise KeyboardInterrupt from None
                raise

    async def _supervise(self, main: Callable[[World], Awaitable[T]], wires: ExitStack) -> T:
        """Run `main` with trip wires. The caller closes `wires` too: this task never ends if trio's loop breaks."""
        body_error: BaseException | None = None
        try:
            with wires:
                wires.enter_context(tripwires(self.stop))
                async with trio.open_nursery() as self._nursery:
                    try:
                        result = await main(self)
                    except BaseException as error:  # noqa: BLE001 - raised again below, but not wrapped in a group
                        body_error = error
                    for name in self._hosts:
                        self._end_life(name)
                    self._nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            sole = sole_error(group)
            raise sole from sole.__cause__
        if self._error is not None:
            raise self._error
        if body_error is not None:
            raise body_error
        return result

    def _deadlocked(self) -> None:
        if self._nursery is not None and not self._nursery.cancel_scope.cancel_called:
            when = f"{self.now_ns / 1e9:.3f} s"
            self._error = Deadlock(f"nothing is left to happen at {when}; waiting: {self._waiting()}")
            self._nursery.cancel_scope.cancel()

    def _livelocked(self) -> None:
        when = f"{self.now_ns / 1e9:.3f} s"
        self.stop(Livelock(f"time stands still at {when} while tasks run; these are there: {self._waiting()}"))

    def _waiting(self) -> str:
        assert self._nursery is not None
        parent = self._nursery.parent_task
        found = [parent.name]
        open_nurseries = list(parent.child_nurseries)
        while open_nurseries:
            for task in sorted(open_nurseries.pop().child_tasks, key=lambda task: task._counter):
                found.append(task.name)
                open_nurseries.extend(task.child_nurseries)
        return ", ".join(found)

    # time and trace

    @property
    def now_ns(self) -> int:
        """Virtual time since the world began."""
        return self._schedule.now_ns

    @property
    def trace_hash(self) -> str:
        """Hash of all events so far."""
        return self._trace.digest

    @property
    def events(self) -> int:
        """Number of traced events."""
        return self._trace.events

    @property
    def trace_checkpoints(self) -> list[str]:
        """The hash after each thousand events."""
        return self._trace.checkpoints

    @property
    def trace_lines(self) -> list[str]:
        """The last lines of the trace, if the options keep some."""
        return list(self._trace.lines)

    def trace(self, node: str, kind: str, payload: bytes = b"") -> None:
        """Add an event of the caller to the trace."""
        self._trace.add(self.now_ns, node, kind, payload)

    async def sleep_ms(self, duration_ms: float) -> None:
        """Let virtual time pass."""
        await self._schedule.sleep(duration_ms / 1000)

    async def sleep_until_ns(self, when_ns: int) -> None:
        """Let virtual time pass until this time. At least one trio checkpoint is executed."""
        await self._schedule.sleep(max(0, when_ns - self.now_ns) / 1e9)

    async def wait_until(self, condition: Callable[[], bool], timeout_ms: int, poll_ms: int) -> bool:
        """Let virtual time pass until the condition is true. Return False if it was not true in time."""
        until_ns = self.now_ns + timeout_ms * 1_000_000
        return await self._schedule.wait_until(condition, until_ns=until_ns, poll_ns=poll_ms * 1_000_000)

    def stop(self, reason: BaseException) -> None:
        """End the run at once, from any code: `run` raises `reason`. An exception in a connection of a node without a
        main function does this too."""
        if self._nursery is not None and self._error is None:
            self._error = reason
            self._nursery.cancel_scope.cancel()

    def watch(self, observer: WorldObserver) -> None:
        """Notify `observer` of events from now on."""
        self._fabric.observer = observer

    # nodes

    def host(self, name: str, address: str | None = None) -> Host:
        """Return the host of this node, created on first use. `address` (default: the name) is what others dial."""
        host = self._hosts.get(name)
        if host is None:
            chance = NamedRandom(self.seed, f"host/{name}")
            host = Host(name, address or name, chance, self._schedule, self._trace, self.options)
            self._hosts[name] = host
            self._fabric.hosts[host.address] = host
        return host

    def node(self, name: str, host: str | None = None, *, dial_map: DialMap | None = None) -> Seam:
        """Start an incarnation of this node without a main function, for clients and tests. If the node runs, it is
        killed first."""
        return self._begin_life(name, host, {} if dial_map is None else dial_map, self.stop).seam

    def start(
        self,
        name: str,
        main: NodeMain,
        *,
        host: str | None = None,
        dial_map: DialMap | None = None,
        on_failure: OnFailure | None = None,
    ) -> Incarnation:
        """Start an incarnation of this node that runs `main(seam)`. If the node runs, it is killed first.

        An exception of `main` or of a connection's handler is passed to `on_failure(name, error)`; without
        `on_failure`, `run` raises it."""
        self._plans[name] = _StartArguments(main, {} if dial_map is None else dial_map, on_failure)
        incarnation = self._begin_life(name, host, {} if dial_map is None else dial_map, None)
        assert self._nursery is not None
        label = f"{name} (life {incarnation.number})"
        self._nursery.start_soon(self._live, incarnation, self._plans[name], name=label)
        return incarnation

    def restart(self, name: str) -> Incarnation:
        """Start this node again with the arguments of its last start."""
        plan = self._plans[name]
        return self.start(name, plan.main, dial_map=plan.dial_map, on_failure=plan.on_failure)

    def is_running(self, name: str) -> bool:
        return name in self._hosts and self._hosts[name].running

    async def wait_ended(self, name: str) -> None:
        """Suspend until the current incarnation of this node is over."""
        incarnation = self._hosts[name].incarnation
        if incarnation is not None:
            await incarnation.ended.wait()

    def _begin_life(
        self, name: str, address: str | None, dial_map: DialMap, on_failure: Callable[[BaseException], None] | None
    ) -> Incarnation:
        host = self.host(name, address)
        if host.running:
            self.kill(name)
        if not host.powered:
            host.boot()
            self._fabric.host_booted(host)
        host.lives += 1
        incarnation = Incarnation(host, host.lives)
        network = FakeNetwork(incarnation, self._fabric, dial_map)
        clock = NodeClock(host.clock, incarnation)
        chance = host.chance.stream(f"life {host.lives}")
        incarnation.adopt(Seam(clock=clock, random=chance, network=network, disk=FakeDisk(incarnation)), on_failure)
        host.incarnation = incarnation
        self._networks[name] = network
        self.trace(name, "start")
        return incarnation

    async def _live(self, incarnation: Incarnation, plan: _StartArguments) -> None:
        """Run one incarnation of a node, to its end."""
        error: BaseException | None = None
        try:
            with incarnation.scope:
                current_seam.set(incarnation.seam)
                await plan.main(incarnation.seam)
        except Exception as raised:  # noqa: BLE001 - handed on below, unless this life was ended from outside
            error = raised
        except BaseExceptionGroup:
            if not incarnation.revoked:
                raise
        if incarnation.revoked:
            return
        self._end_life(incarnation.name)
        error = incarnation.failure or error
        if error is None:
            return
        error = sole_error(error)
        self.trace(incarnation.name, "failed", str(error).encode())
        if plan.on_failure is None:
            error.add_note(f"raised by node {incarnation.name} at {self.now_ns / 1e9:.3f} s, seed {self.seed}")
            raise error
        plan.on_failure(incarnation.name, error)

    # pauses

    def pause(self, name: str) -> None:
        """Freeze the process of this node (SIGSTOP, a long garbage collection) until `resume`; time passes
        meanwhile."""
        incarnation = self._hosts[name].incarnation
        if incarnation is not None and not incarnation.revoked:
            self.trace(name, "pause")
            incarnation.pause()

    def resume(self, name: str) -> None:
        """Unfreeze the process. All that became due while it was frozen happens at once."""
        incarnation = self._hosts[name].incarnation
        if incarnation is not None and incarnation.paused:
            self.trace(name, "resume")
            incarnation.resume()
            self._networks[name].driver.request_pass()

    def is_paused(self, name: str) -> bool:
        incarnation = self._hosts[name].incarnation
        return incarnation is not None and incarnation.paused and not incarnation.revoked

    # crashes

    def kill(self, name: str) -> None:
        """Kill the process (kill -9): the disk keeps everything, peers see their connections end."""
        if self._hosts[name].running:
            self.trace(name, "kill")
            self._end_life(name)

    def power_off(self, name: str) -> None:
        """Cut the host's power: peers receive nothing, the disk keeps what was synced and a random part of the pending
        writes."""
        host = self._hosts[name]
        if not host.powered:
            return
        self.trace(name, "power off")
        self._end_life(name, silent=True)
        host.lose_power()

    def _end_life(self, name: str, *, silent: bool = False) -> None:
        """End an incarnation: revoke its handles, then end or silence its streams, then cancel its task."""
        incarnation = self._hosts[name].incarnation
        if incarnation is None or incarnation.revoked:
            return
        incarnation.revoked = True
        incarnation.resume()
        network = self._networks[name]
        for listener in network.listeners():
            listener.close()
        for endpoint in network.endpoints():
            if silent:
                endpoint.go_dark()
            else:
                endpoint.die()
        incarnation.scope.cancel()
        incarnation.ended.set()

    def wipe(self, name: str) -> None:
        """Replace the disk of a host whose node is dead by an empty one."""
        host = self._hosts[name]
        require(not host.running, f"{name} runs: a disk is not replaced under it")
        self.trace(name, "wipe")
        host.replace_disk()

    # network faults

    def partition(self, one: str, other: str) -> None:
        """Hold everything between two nodes, in both directions, until `heal`."""
        self.partition_one_way(one, other)
        self.partition_one_way(other, one)

    def partition_one_way(self, source: str, target: str) -> None:
        """Hold everything that `source` sends to `target`, including what is in flight."""
        self.trace(source, "cut", target.encode())
        self._fabric.cut(source, target)

    def isolate(self, name: str) -> None:
        """Hold everything between this node and all others that the world knows."""
        for other in self._hosts:
            if other != name:
                self.partition(name, other)

    def is_cut(self, source: str, target: str) -> bool:
        """Return whether what `source` sends to `target` is held now."""
        return self._fabric.is_cut(self._hosts[source], self._hosts[target])

    def heal(self, one: str, other: str) -> None:
        """End the partition between two nodes: what was held arrives, in order."""
        self.trace(one, "heal", other.encode())
        self._fabric.heal(lambda source, target: {source, target} == {one, other})

    def heal_one_way(self, source: str, target: str) -> None:
        """End the partition from `source` to `target`: held data arrives first. The opposite direction does
        not change."""
        self.trace(source, "heal one way", target.encode())
        self._fabric.heal(lambda *link: link == (source, target))

    def heal_all(self) -> None:
        self.trace("world", "heal")
        self._fabric.heal(lambda source, target: True)
        self._fabric.restore_all()

    def link_quality(self, source: str, target: str) -> LinkQuality | None:
        """Return the quality of the link from `source` to `target`; None: normal."""
        return self._fabric.quality(self._hosts[source], self._hosts[target])

    def set_link_quality(self, source: str, target: str, quality: LinkQuality | None) -> None:
        """Set the quality of the link from `source` to `target`. None: normal; data that a slow link has held back
        arrives soon."""
        self.trace(source, "quality", f"{target} {quality}".encode())
        self._fabric.set_quality(source, target, quality)

    def reset_links(self, one: str, other: str) -> None:
        """Drop every connection between two nodes; a random part of the data in flight is lost."""
        self.trace(one, "reset", other.encode())
        self._fabric.reset_links(one, other)

    def stall_links(self, source: str, target: str, duration_ms: int, *, one_in: int = 2) -> None:
        """Delay data sent from now on over some of the connections from `source` to `target`, as retransmission of lost
        packets does; other connections are not delayed."""
        self.trace(source, "stall", target.encode())
        self._fabric.stall_links(source, target, duration_ms * 1_000_000, one_in)

    def set_link_policy(self, name: str, node_id: int, listener: str, policy: LinkPolicy) -> None:
        """Apply `policy` to the link over which node `name` dials (node_id, listener), for its current incarnation."""
        self.trace(name, "policy", f"{node_id}/{listener}/{policy.name}".encode())
        self._networks[name].set_link_policy(node_id, listener, policy)

    # disk and clock faults

    def disk_full(self, name: str, full: bool) -> None:
        self.trace(name, "disk full", b"%d" % full)
        self._hosts[name].disk_full = full

    def sync_fails(self, name: str, fails: bool) -> None:
        """Switch failing syncs on or off. While on, every sync of this host fails, and the pages that it covered never
        reach the device."""
        self.trace(name, "sync fails", b"%d" % fails)
        self._hosts[name].sync_fails = fails

    def fail_directory(self, name: str, path: str | None) -> None:
        """Make every device access below this directory fail, except reads from the page cache; None ends the fault."""
        self.trace(name, "directory fails", (path or "").encode())
        self._hosts[name].failing_directory = path

    def fail_reads(self, name: str, path: str | None) -> None:
        """Make every read from the device below this directory fail; reads from the page cache succeed. None ends the
        fault."""
        self.trace(name, "reads fail", (path or "").encode())
        self._hosts[name].unreadable_directory = path

    def delete_folder(self, name: str, path: str) -> None:
        """Remove a folder of a host whose node is dead, as an operator may."""
        host = self._hosts[name]
        require(not host.running, f"{name} runs: its folders cannot be removed")
        self.trace(name, "take away", path.encode())
        host.delete_folder(path)

    def slow_disk(self, name: str, extra_ms: int) -> None:
        """Make every sync and every access to this host's disk take up to this much longer. A call with 0 ends the
        fault."""
        self.trace(name, "slow disk", b"%d" % extra_ms)
        self._hosts[name].disk_extra_ns = extra_ms * 1_000_000

    def jump_clock(self, name: str, offset_ms: int) -> None:
        """Step this host's wall clock by this difference, forward or back."""
        self.trace(name, "clock", b"%d" % offset_ms)
        self._hosts[name].clock.wall_offset_ms += offset_ms
