"""Operations by which a test breaks a cluster: the same for a simulated cluster and for a cluster of real processes.

`BreakableCluster` implements their rules. Each kind of cluster implements the primitive methods, whose names begin with
an underscore. Invariants: a partition lasts until `heal`, also for nodes that are started meanwhile. A fault of
requests lasts until it has affected the requested number of requests, until the test ends it, or until the process of
its node is gone.
Source: docs/decisions/09-faults-on-purpose.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self, TypedDict, Unpack

from kraft.sim.breakable_links import BreakableLinks
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.on_clusters import ROLES_EVERYWHERE
from kraft.sim.nemesis.partition_shapes import end_of
from kraft.sim.shapes import ClusterError
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ReplyAction, ReplyRule, rule_from


class Which(TypedDict, total=False):
    """Selects the requests that a fault affects. A field that is not given matches any request; `times` is 1 by
    default."""

    times: int | None
    """Number of requests to affect. None: every request until `heal`."""
    node: int
    """The only broker whose requests are affected."""
    topic: str
    partition: int
    client: str
    """The only client id whose requests are affected."""
    after: bool
    """Whether the broker carries the request out, so that the fault affects only the response."""


@dataclass(eq=False, slots=True)
class Fault(AbstractContextManager["Fault"]):
    """A fault that tampers with requests at brokers: an error response, no response, a delay or a closed connection. If
    the fault is used as a context manager, it ends when the block ends."""

    rule: ReplyRule
    cluster: BreakableCluster
    numbers: dict[int, int] = field(default_factory=dict)
    """Map from node id to the number under which the node's process stores this fault's rule."""
    counts: dict[int, int] = field(default_factory=dict)
    """Map from node id to the number of requests that the fault has affected at that node, as last reported by the
    node."""
    is_ended: bool = False

    @property
    def applied(self) -> int:
        """Return the number of requests affected at all nodes. A paused node counts with its last reported number."""
        self.cluster._count(self)
        return sum(self.counts.values())

    def end(self) -> None:
        """End the fault: later requests are not affected."""
        self.cluster._end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class FoundPartition(NamedTuple):
    """Leader, ISR and replicas of a partition, as its leader or a follower reports them."""

    leader: int | None
    isr: Sequence[int]
    replicas: Sequence[int]


class BreakableCluster(BreakableLinks):
    """A cluster that a test can break; see the module. Methods raise ClusterError if the named node does not exist or
    is in a state that does not allow the operation."""

    fault_roles: ClassVar[tuple[str, ...]] = ROLES_EVERYWHERE
    """Roles, such as the active controller, that a fault may name instead of a node id."""

    def __init__(self, shape: ClusterShape) -> None:
        super().__init__()
        self.shape = shape
        self._faults: list[Fault] = []
        """Faults that were sent to at least one process and have not ended."""

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Ids of all nodes. Brokers are 1, 2, …, controllers 101, 102, …; nodes with both roles are 1, 2, …"""
        return self.shape.node_ids

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return self.shape.broker_ids

    @property
    def controller_ids(self) -> tuple[int, ...]:
        return self.shape.controller_ids

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """Initial addresses for clients: the brokers' addresses, comma-separated."""

    # starts and ends of nodes

    def kill(self, node: int) -> None:
        """End a node's process at once, as kill -9 does."""
        self._require(node, running=True)
        self._leave(node)
        self._kill(node)

    def stop(self, node: int, *, until_ended: bool = True) -> None:
        """Stop a node cleanly: a broker first hands its leaderships over. `until_ended`: in a cluster whose methods
        block, wait until the node has ended."""
        self._require(node, running=True)
        self._leave(node)
        self._stop(node)
        if until_ended:
            self._wait_ended(node)

    def start(self, node: int, *, until_ready: bool = True) -> None:
        """Start a node again that was killed or stopped. `until_ready`: in a cluster whose methods block, wait until
        the node serves. In other clusters, call `follow_start` afterwards."""
        self._require(node, running=False)
        self._leave(node)
        self._start(node)
        if until_ready:
            self._wait_ready(node)

    def follow_start(self, node: int) -> bool:
        """Return whether a started node needs no further calls: it serves, it is cut off (and may never serve), or its
        process has ended. Call this repeatedly until it returns True, because each call also sends the node the list of
        its links that are cut. Raises ClusterError if the process has ended because of an error."""
        self._require(node)
        return self._follow_start(node)

    def pause(self, node: int) -> None:
        """Freeze a node's process: its connections stay open, and it sends nothing."""
        self._require(node, running=True)
        if not self.is_paused(node):
            for fault in self._faults:
                self._count(fault)
            self._pause(node)

    def resume(self, node: int) -> None:
        """Unfreeze a paused node."""
        self._require(node, running=True)
        if self.is_paused(node):
            self._resume(node)
            self._cut_links()
            for fault in [fault for fault in self._faults if fault.is_ended]:
                self._end(fault)

    def is_running(self, node: int) -> bool:
        """Return whether the node has a process. True also for a paused node."""
        self._require(node)
        return self._is_running(node)

    def is_paused(self, node: int) -> bool:
        self._require(node)
        return self._is_paused(node)

    # links: see BreakableLinks

    def heal(self) -> None:
        """End all faults of links and requests. Nodes that are down stay down, and paused nodes stay paused: `mend`
        restarts them."""
        self._cuts.clear()
        self._qualities.clear()
        with ExitStack() as healing:  # a fault that cannot be ended must not prevent the end of others
            for fault in reversed(self._faults):
                healing.callback(fault.end)
            self._cut_links()

    def mend(self) -> None:
        """Heal, resume paused nodes, and start the nodes that are down. In a cluster whose methods block, wait until
        all nodes serve."""
        for node in self.node_ids:
            if self.is_paused(node):
                self.resume(node)
        self.heal()
        for node in self.node_ids:
            if not self.is_running(node):
                self.start(node, until_ready=False)
        for node in self.node_ids:  # a node that was down can serve only when enough other nodes run
            self._wait_ready(node)

    # plans

    def holders(self, role: str) -> list[int]:
        """Return the nodes that now have this role (one of `fault_roles`). A node appears once for each partition that
        it leads."""
        if role == plan.ACTIVE_CONTROLLER:
            active = self.active_controller()
            return [] if active is None else [active]
        if role not in self.fault_roles:
            raise ClusterError(
                f"this cluster cannot find the node with role {role!r}: known roles are {', '.join(self.fault_roles)}"
            )
        found = self._partitions() or []
        if role == plan.SHRUNK_LEADER:
            found = [one for one in found if len(one.isr) < len(one.replicas)]
        return sorted(one.leader for one in found if one.leader is not None)

    def begin_fault(self, fault: plan.Fault) -> Callable[[], None] | None:
        """Begin a lasting fault at `fault.node` of a kind that only this sort of cluster supports. Return the function
        that ends the fault, or None if the node already has it."""
        link = (end_of(fault.node), end_of(fault.other))
        if fault.kind == plan.CUT_ONE_WAY and link not in self._cuts:
            self.cut_one_way(*link)
            return lambda: self._end_cut(link)
        links = self._degraded_links(fault)
        if fault.kind in plan.QUALITY_KINDS and not any(one in self._qualities for one in links):
            self._qualities.update(dict.fromkeys(links, fault.quality))
            self._cut_links()
            return lambda: self._restore_all(links)
        if fault.kind in (plan.CUT_ONE_WAY, *plan.QUALITY_KINDS):
            return None
        raise ClusterError(f"this cluster cannot have {fault.kind!r}")

    def _degraded_links(self, fault: plan.Fault) -> list[tuple[int, int]]:
        """Return the links that a fault degrades: both directions of the link that it names, or all links of
        its node."""
        end = end_of(fault.node)
        return [(end, end_of(fault.other))] if fault.other else self._links_of(end)

    # requests

    def fail_next(self, api: str, *, code: str | int, **which: Unpack[Which]) -> Fault:
        """Answer the next matching request with this error: `code` is the error's name or number in Kafka. Raises
        ValueError if Kafka has no such error. Each broker counts `times` for itself; `node` selects one broker."""
        error = code.upper() if isinstance(code, str) else ErrorCode(code).name
        return self._spoil({"api": api, "action": ReplyAction.ERROR, "error": error}, which)

    def drop(self, api: str | None = None, **which: Unpack[Which]) -> Fault:
        """Never answer the next matching request (`api` None: a request of any kind). Later requests on its connection
        wait as well."""
        return self._spoil({"api": api, "action": ReplyAction.DROP}, which)

    def disconnect(self, api: str | None = None, **which: Unpack[Which]) -> Fault:
        """Close the connection on which the next matching request arrives."""
        return self._spoil({"api": api, "action": ReplyAction.CLOSE}, which)

    def delay(self, api: str | None = None, *, ms: int, **which: Unpack[Which]) -> Fault:
        """Delay the next matching request, and later requests on its connection, for this long."""
        return self._spoil({"api": api, "action": ReplyAction.DELAY, "delay_ms": ms}, which)

    def _spoil(self, what: dict[str, Any], which: Which) -> Fault:
        narrowed: dict[str, Any] = {"times": 1, **which}
        node = narrowed.pop("node", None)
        narrowed["client_id"] = narrowed.pop("client", None)
        rule = rule_from({**what, **narrowed})
        if node is not None:
            self._require(node, running=True)
            if self.is_paused(node):
                raise ClusterError(f"node {node} is paused and cannot be told of a fault; resume it first")
        fault = Fault(rule, self)
        self._faults.append(fault)  # if a node cannot be reached, `heal` ends the fault on the others
        for one in self._listening() if node is None else [node]:
            fault.numbers[one] = self._add_rule(one, rule)
        return fault

    def _end(self, fault: Fault) -> None:
        """Remove a fault's rules from all nodes. A paused node is notified when it is resumed."""
        fault.is_ended = True
        self._count(fault)
        for node in [node for node in fault.numbers if not self._is_paused(node)]:
            self._remove_rule(node, fault.numbers.pop(node))
        self._forget_what_is_over()

    def _count(self, fault: Fault) -> None:
        for node, number in fault.numbers.items():
            if self._is_listening(node):
                fault.counts[node] = self._applied(node, number)

    def _leave(self, node: int) -> None:
        """Discard what is recorded about the fault rules of a node whose process is about to end or has ended."""
        for fault in self._faults:
            if node in fault.numbers:
                self._count(fault)
                del fault.numbers[node]
        self._forget_what_is_over()

    def _forget_what_is_over(self) -> None:
        self._faults = [fault for fault in self._faults if fault.numbers]

    def _is_listening(self, node: int) -> bool:
        return self._is_running(node) and not self._is_paused(node)

    def _listening(self) -> list[int]:
        """Return the brokers that can receive a fault now: they run and are not paused."""
        return [node for node in self.broker_ids if self._is_listening(node)]

    # state

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return the broker that leads this partition, None if the partition has no leader. Raises KafkaError if the
        partition does not exist."""
        return self._find(topic, partition)[0]

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """Return the brokers in the ISR of this partition, including the leader."""
        return sorted(self._find(topic, partition)[1])

    def is_whole(self) -> bool:
        """Return whether every node runs, and every replica is in sync, as far as nodes report it."""
        if not all(self.is_running(node) and not self.is_paused(node) for node in self.node_ids):
            return False
        if self.active_controller() is None:
            return False
        found = self._partitions()
        return found is not None and all(one.leader is not None and set(one.isr) == set(one.replicas) for one in found)

    @abstractmethod
    def active_controller(self) -> int | None:
        """Return the controller that leads the quorum, None while there is none."""

    @abstractmethod
    def describe(self) -> str:
        """Describe the state of the cluster for the reader of a failed test."""

    def _require(self, node: int, *, running: bool | None = None) -> None:
        if node not in self.node_ids:
            known = ", ".join(map(str, sorted(self.node_ids)))
            raise ClusterError(f"there is no node {node}: this cluster has {known}")
        if running is not None and self._is_running(node) is not running:
            raise ClusterError(f"node {node} runs already" if not running else f"node {node} does not run")

    # primitives

    @abstractmethod
    def _kill(self, node: int) -> None: ...

    @abstractmethod
    def _stop(self, node: int) -> None:
        """Ask the node to stop, without waiting."""

    @abstractmethod
    def _wait_ended(self, node: int) -> None: ...

    @abstractmethod
    def _start(self, node: int) -> None:
        """Start the node, without waiting."""

    @abstractmethod
    def _wait_ready(self, node: int) -> None: ...

    @abstractmethod
    def _follow_start(self, node: int) -> bool: ...

    @abstractmethod
    def _pause(self, node: int) -> None: ...

    @abstractmethod
    def _resume(self, node: int) -> None: ...

    @abstractmethod
    def _is_running(self, node: int) -> bool: ...

    @abstractmethod
    def _is_paused(self, node: int) -> bool: ...

    @abstractmethod
    def _add_rule(self, node: int, rule: ReplyRule) -> int: ...

    @abstractmethod
    def _remove_rule(self, node: int, number: int) -> None:
        """Remove a fault rule from a node, also a rule that has already affected all its requests."""

    @abstractmethod
    def _applied(self, node: int, number: int) -> int: ...

    @abstractmethod
    def _partitions(self) -> list[FoundPartition] | None:
        """Return all partitions that any node reports; None if no node answers."""

    @abstractmethod
    def _find(self, topic: str, partition: int) -> tuple[int | None, Sequence[int]]:
        """Return leader and ISR of a partition. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
