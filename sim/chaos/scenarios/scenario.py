"""Scenario: which cluster, which clients, what goes wrong and when. A scenario is a short TOML file.

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
    readers = 1                           # consumers that read every partition along
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
    """A scenario cannot be read, or cannot run as it is asked for; the text says what, where, and what would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioCluster:
    """The cluster that is started. `settings` are those of every node."""

    controllers: int = 3
    brokers: int = 3
    combined: int = 0
    """Nodes of both roles; not 0 excludes the other two."""
    dynamic_voters: bool = False
    """The voters may change at run time (KIP-853)."""
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTopic:
    """The topic that producers write to."""

    partitions: int = 3
    replicas: int = 3
    configs: Mapping[str, str] = field(default_factory=lambda: {"min.insync.replicas": "2"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioWorkload:
    """The clients. Each producer sends to one partition, one record after the other."""

    producers: int = 3
    rate: float = 50.0
    """Records per second of each producer, at most."""
    acks: str = "all"
    idempotent: bool = True
    delivery_timeout_ms: int = 30_000
    """A record that is not acknowledged in this time counts as failed, or as unknown."""
    value_bytes: int = 0
    """Each value is filled up to this length."""
    readers: int = 1
    """Consumers that read all partitions along."""
    group_members: int = 0
    """Consumers of one group that commit as they go."""
    group_churn_s: float = 0.0
    """Every so often a member of the group leaves or is dropped, and another one comes; 0: never."""
    topic_churn: int = 0
    """Clients that create and delete topics, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFault:
    """A fault, and by what one sees that it took effect."""

    fault: Fault
    evidence: tuple[str, ...] = ()
    """Names of kraft.sim.chaos.judge.evidence, any of which will do; (): those of the fault's kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioExpectation:
    """What this scenario promises. `allowed` are anomalies (kraft.sim.check.histories.client_histories.ANOMALIES) that
    its settings permit: they are counted and shown, and the run is valid all the same."""

    allowed: tuple[str, ...] = ()
    must_find: tuple[str, ...] = ()
    """Anomalies without which the run is unknown: what it was to show did not come about."""
    gap_ms_max: int = 0
    """Longest time without a success after a fault, for the producers that it hits; 0: any, as long as it ends. Held to
    by clusters of pykraft that the run starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """See the module. Times are in ms, counted from when the clients began."""

    name: str
    title: str
    about: str = ""
    duration_ms: int = 20_000
    cluster: ScenarioCluster = field(default_factory=ScenarioCluster)
    topic: ScenarioTopic = field(default_factory=ScenarioTopic)
    workload: ScenarioWorkload = field(default_factory=ScenarioWorkload)
    faults: tuple[ScenarioFault, ...] = ()
    random_faults: bool = False
    """A seed draws further faults of every kind that the cluster can have."""
    expects: ScenarioExpectation = field(default_factory=ScenarioExpectation)
    is_core: bool = False
    """Among those that `make chaos` runs ten times."""
    text: str = ""
    """The file's own text."""
