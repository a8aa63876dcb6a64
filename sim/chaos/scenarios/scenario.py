"""Scenario: the cluster, the clients, the faults and their times. A scenario is a short TOML file.

    title = "Broker crash"
    about = "The leader of a partition is killed with kill -9 and comes back."
    duration_s = 20                       # clients run for this long; the faults' times count from their begin

    [cluster]
    controllers = 3
    brokers = 3
    [cluster.settings]                    # of every node, as in server.properties

    [topic]
    partitions = 3
    replicas = 3
    [topic.configs]
    "min.insync.replicas" = "2"

    [workload]
    producers = 3
    rate = 50                             # records per second of each producer
    acks = "all"
    readers = 1                           # consumers that each read every partition
    group_members = 0                     # consumers of one group

    [[fault]]
    at_s = 4
    kind = "kill"
    role = "leader"
    back_s = 5

The kinds of faults are those of `kraft.sim.nemesis.plan.Fault`. The same file runs on real processes (`kraft chaos
run`) and in virtual time (`kraft sim scenario`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraft.sim.nemesis.plan import Fault

TOPIC = "chaos"
GROUP = "chaos-group"


class ScenarioError(ValueError):
    """A scenario cannot be read, or cannot run as requested; the text says what is wrong, where, and what is valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioCluster:
    """The cluster to start. `settings` apply to every node."""

    controllers: int = 3
    brokers: int = 3
    combined: int = 0
    """Number of nodes with both roles; if not 0, `controllers` and `brokers` do not count."""
    dynamic_voters: bool = False
    """Whether the voters may change at run time (KIP-853)."""
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTopic:
    """The topic that producers write to."""

    partitions: int = 3
    replicas: int = 3
    configs: Mapping[str, str] = field(default_factory=lambda: {"min.insync.replicas": "2"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioWorkload:
    """The clients. Each producer sends to one partition, with one record in flight at a time."""

    producers: int = 3
    rate: float = 50.0
    """Maximum records per second of each producer."""
    acks: str = "all"
    idempotent: bool = True
    delivery_timeout_ms: int = 30_000
    """A record that is not acknowledged within this time counts as failed, or as unknown."""
    value_bytes: int = 0
    """Each value is padded to this length."""
    readers: int = 1
    """Number of consumers that read all partitions during the run."""
    group_members: int = 0
    """Number of consumers of one group, which commit as they read."""
    group_churn_s: float = 0.0
    """Interval at which a member of the group leaves or is dropped and is replaced by a new one; 0: never."""
    topic_churn: int = 0
    """Number of clients that create and delete topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFault:
    """A fault, and the evidence that it took effect."""

    fault: Fault
    evidence: tuple[str, ...] = ()
    """Names of signs (kraft.sim.chaos.judge.evidence); one of them is sufficient. (): the evidence that the fault's
    kind needs by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioExpectation:
    """Expected results of this scenario. `allowed` are anomalies (kraft.sim.check.histories.client_histories.ANOMALIES)
    that its settings permit: they are counted and shown, and the run is still valid."""

    allowed: tuple[str, ...] = ()
    must_find: tuple[str, ...] = ()
    """Anomalies that the scenario is meant to produce; without them the verdict is unknown."""
    gap_ms_max: int = 0
    """Maximum time without a success after a fault, for the producers that it affects. 0: no maximum, but the gap must
    end. Enforced only for clusters of pykraft that the run starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario; see the module. Times are in ms, counted from the clients' start."""

    name: str
    title: str
    about: str = ""
    duration_ms: int = 20_000
    cluster: ScenarioCluster = field(default_factory=ScenarioCluster)
    topic: ScenarioTopic = field(default_factory=ScenarioTopic)
    workload: ScenarioWorkload = field(default_factory=ScenarioWorkload)
    faults: tuple[ScenarioFault, ...] = ()
    random_faults: bool = False
    """Whether a seed draws further faults of every kind that the cluster can have."""
    expects: ScenarioExpectation = field(default_factory=ScenarioExpectation)
    is_core: bool = False
    """Whether the scenario is among those that `make chaos` runs ten times each."""
    text: str = ""
    """The text of the file."""
