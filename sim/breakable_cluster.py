"""What a test can do to a cluster: the same verbs for a simulated cluster and for one of real processes.

The rules of the verbs stand here once; whoever has a cluster gives the primitives, the methods with an underscore.
Invariants: a partition lasts until `heal`, also for nodes that are started meanwhile; a fault of requests lasts until
it happened as often as it was asked for, it is ended, or its node's process is gone.
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
    """The requests that a fault is about; what is missing means any, but `times` is 1 unless it is said."""

    times: int | None
    """So many of them; None: all, until `heal`."""
    node: int
    """Only at this node."""
    topic: str
    partition: int
    client: str
    """Only of this client id."""
    after: bool
    """The request is carried out, and only its answer is spoiled."""


@dataclass(eq=False, slots=True)
class Fault(AbstractContextManager["Fault"]):
    """A fault of requests. It may be used as a context, which ends it."""

    rule: ReplyRule
    cluster: BreakableCluster
    numbers: dict[int, int] = field(default_factory=dict)
    """Node → the rule's number in the process that it was given to."""
    counts: dict[int, int] = field(default_factory=dict)
    """Node → how often it had happened there when the node was asked last."""
    is_ended: bool = False

    @property
    def applied(self) -> int:
        """How often it has happened, at all nodes together; a paused one is not asked again."""
        self.cluster._count(self)
        return sum(self.counts.values())

    def end(self) -> None:
        """No more of it."""
        self.cluster._end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class FoundPartition(NamedTuple):
    """A partition as somebody who leads or follows it knows it."""

    leader: int | None
    isr: Sequence[int]
    replicas: Sequence[int]


class BreakableCluster(BreakableLinks):
    """See the module. Verbs raise ClusterError if there is no such node, or it is not in a state for them."""

    fault_roles: ClassVar[tuple[str, ...]] = ROLES_EVERYWHERE
    """The roles that a fault may name in the place of a node."""

    def __init__(self, shape: ClusterShape) -> None:
        super().__init__()
        self.shape = shape
        self._faults: list[Fault] = []
        """Those that a process has been told of, and not of their end."""

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Brokers are 1, 2, …, controllers 101, 102, …; nodes of both roles 1, 2, …"""
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
        """Where clients begin: the brokers' addresses, comma-separated."""

    # lives

    def kill(self, node: int) -> None:
        """End a node's process at once, as kill -9 does."""
        self._require(node, running=True)
        self._leave(node)
        self._kill(node)

    def stop(self, node: int, *, until_ended: bool = True) -> None:
        """Let a node stop in order: a broker hands its leaderships over first. `until_ended`: where verbs block, until
        it has ended."""
        self._require(node, running=True)
        self._leave(node)
        self._stop(node)
        if until_ended:
            self._wait_ended(node)

    def start(self, node: int, *, until_ready: bool = True) -> None:
        """Start a node again that was killed or stopped. `until_ready`: where verbs block, until it serves; else
        `follow_start` is to be called."""
        self._require(node, running=False)
        self._leave(node)
        self._start(node)
        if until_ready:
            self._wait_ready(node)

    def follow_start(self, node: int) -> bool:
        """Whether a node that was started needs to be followed no more: it serves, it is cut off (and may never serve),
        or it has ended. To be called again and again until then, because it is told on the way that it is cut off.
        ClusterError if it has ended by a fault of its own."""
        self._require(node)
        return self._follow_start(node)

    def pause(self, node: int) -> None:
        """Freeze a node's process: its connections stay, and nothing comes from it."""
        self._require(node, running=True)
        if not self.is_paused(node):
            for fault in self._faults:
                self._count(fault)
            self._pause(node)

    def resume(self, node: int) -> None:
        """Let a paused node go on."""
        self._require(node, running=True)
        if self.is_paused(node):
            self._resume(node)
            self._cut_links()
            for fault in [fault for fault in self._faults if fault.is_ended]:
                self._end(fault)

    def is_running(self, node: int) -> bool:
        """Whether the node has a process; a paused one has."""
        self._require(node)
        return self._is_running(node)

    def is_paused(self, node: int) -> bool:
        self._require(node)
        return self._is_paused(node)

    # links: see BreakableLinks

    def heal(self) -> None:
        """End all faults of links and requests. Nodes that are down or paused stay so: see `mend`."""
        self._cuts.clear()
        self._qualities.clear()
        with ExitStack() as healing:  # what cannot be ended keeps nothing else from its end
            for fault in reversed(self._faults):
                healing.callback(fault.end)
            self._cut_links()

    def mend(self) -> None:
        """Heal, let paused nodes go on, and start those that are down: where verbs block, until all of them serve."""
        for node in self.node_ids:
            if self.is_paused(node):
                self.resume(node)
        self.heal()
        for node in self.node_ids:
            if not self.is_running(node):
                self.start(node, until_ready=False)
        for node in self.node_ids:  # one that was down serves when enough of the others run
            self._wait_ready(node)

    # plans

    def holders(self, role: str) -> list[int]:
        """The nodes that have this role now (one of `fault_roles`); one stands for each partition that it leads."""
        if role == plan.ACTIVE_CONTROLLER:
            active = self.active_controller()
            return [] if active is None else [active]
        if role not in self.fault_roles:
            raise ClusterError(f"nobody can tell here who is {role!r}: roles are {', '.join(self.fault_roles)}")
        found = self._partitions() or []
        if role == plan.SHRUNK_LEADER:
            found = [one for one in found if len(one.isr) < len(one.replicas)]
        return sorted(one.leader for one in found if one.leader is not None)

    def begin_fault(self, fault: plan.Fault) -> Callable[[], None] | None:
        """Begin what goes on by itself at `fault.node`, and what only this kind of cluster can do; gives what ends it,
        None if it goes on already and is not begun again."""
        link = (end_of(fault.node), end_of(fault.other))
        if fault.kind == plan.CUT_ONE_WAY and link not in self._cuts:
            self.cut_one_way(*link)
            return lambda: self._end_cut(link)
        links = self._links_that_fare_badly(fault)
        if fault.kind in plan.QUALITY_KINDS and not any(one in self._qualities for one in links):
            self._qualities.update(dict.fromkeys(links, fault.quality))
            self._cut_links()
            return lambda: self._restore_all(links)
        if fault.kind in (plan.CUT_ONE_WAY, *plan.QUALITY_KINDS):
            return None
        raise ClusterError(f"this cluster cannot have {fault.kind!r}")

    def _links_that_fare_badly(self, fault: plan.Fault) -> list[tuple[int, int]]:
        """The link that a fault names, or all links of its node, both ways."""
        end = end_of(fault.node)
        return [(end, end_of(fault.other))] if fault.other else self._links_of(end)

    # requests

    def fail_next(self, api: str, *, code: str | int, **which: Unpack[Which]) -> Fault:
        """Answer the next such request with this error: `code` is Kafka's name or number of it. ValueError if that
        makes no sense. Each broker counts `times` for itself; `node` chooses one."""
        error = code.upper() if isinstance(code, str) else ErrorCode(code).name
        return self._spoil({"api": api, "action": ReplyAction.ERROR, "error": error}, which)

    def drop(self, api: str | None = None, **which: Unpack[Which]) -> Fault:
        """Never answer the next such request (`api` None: of any kind). What comes behind it on its connection waits
        as well."""
        return self._spoil({"api": api, "action": ReplyAction.DROP}, which)

    def disconnect(self, api: str | None = None, **which: Unpack[Which]) -> Fault:
        """Close the connection on which the next such request comes."""
        return self._spoil({"api": api, "action": ReplyAction.CLOSE}, which)

    def delay(self, api: str | None = None, *, ms: int, **which: Unpack[Which]) -> Fault:
        """Let the next such request, and what comes behind it on its connection, wait so long."""
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
        self._faults.append(fault)  # if somebody cannot be told, `heal` ends it where it was told
        for one in self._listening() if node is None else [node]:
            fault.numbers[one] = self._add_rule(one, rule)
        return fault

    def _end(self, fault: Fault) -> None:
        """A paused node is told when it goes on."""
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
        """The process of a node is about to end, or has ended, and its rules with it."""
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
        """The brokers that can be told of a fault now."""
        return [node for node in self.broker_ids if self._is_listening(node)]

    # state

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The broker that leads this partition, None if nobody does. KafkaError if there is no such partition."""
        return self._find(topic, partition)[0]

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """The brokers that are in sync with the leader of this partition, it included."""
        return sorted(self._find(topic, partition)[1])

    def is_whole(self) -> bool:
        """Whether every node runs, and every replica is in sync, as far as anybody tells."""
        if not all(self.is_running(node) and not self.is_paused(node) for node in self.node_ids):
            return False
        if self.active_controller() is None:
            return False
        found = self._partitions()
        return found is not None and all(one.leader is not None and set(one.isr) == set(one.replicas) for one in found)

    @abstractmethod
    def active_controller(self) -> int | None:
        """The controller that leads the quorum, None while there is none."""

    @abstractmethod
    def describe(self) -> str:
        """What a person wants to know of the cluster when a test has failed."""

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
        """Ask it to, and do not wait."""

    @abstractmethod
    def _wait_ended(self, node: int) -> None: ...

    @abstractmethod
    def _start(self, node: int) -> None:
        """Begin, and do not wait."""

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
        """Also of a rule that is used up."""

    @abstractmethod
    def _applied(self, node: int, number: int) -> int: ...

    @abstractmethod
    def _partitions(self) -> list[FoundPartition] | None:
        """All partitions that anybody tells of; None if nobody answers."""

    @abstractmethod
    def _find(self, topic: str, partition: int) -> tuple[int | None, Sequence[int]]:
        """Leader and ISR. KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
