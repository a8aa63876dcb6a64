"""The plan of a run: all that a seed draws, as one value, before the run starts.

A run carries out its plan and draws nothing else, so a plan can be stored in a file, replayed, and made smaller. Only
the details of the simulated world (how long a piece of data travels, in which order tasks run) still come from the
seed, in named streams. Removing one fault or operation does not change the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kraft.seam import LinkQuality
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.world.options import WorldOptions

SCHEDULE_VERSION = 16
"""Version of the drawing of plans. It is increased when a seed draws another plan than before. Plans in files are not
affected."""

PLAN_MS_MAX = 24 * 60 * 60 * 1000
"""Maximum time in a plan: a day of virtual time, for which a run takes hours."""

TRANSACTION_VERSION_MAX = 2
"""Newest level of transaction.version."""

TOPIC = "orders"
PARTITIONS = 3
RETENTION_CHECK = "log.retention.check.interval.ms"
OVERRIDES = MappingProxyType(
    {"default.replication.factor": "3", "min.insync.replicas": "2", "auto.create.topics.enable": "false"}
)

KILL, POWER_LOSS, CLEAN_STOP = CRASH_KINDS = ("kill", "power loss", "clean stop")
CUT, CUT_ONE_WAY, ISOLATE = "cut", "cut one way", "isolate"
NETWORK_KINDS = ("reset", "clock", CUT, CUT_ONE_WAY, ISOLATE)
EMPTY_DISK = "empty disk"
OTHER_KINDS = ("stall", "pause", "slow disk", "full disk", "failing sync", EMPTY_DISK, "stumble", "flap")
DIRECTORY = "failing directory"
"""Kind of fault by which one log directory of a broker fails; only possible where brokers have several."""
BIT_ROT, READ_ERROR, MISDIRECTED = WEAR_KINDS = ("bit rot", "read error", "misdirected write")
"""Kinds of faults of brokers' disks. BIT_ROT: bytes of a log change under its CRC. READ_ERROR: reads from a log
directory fail. MISDIRECTED: bytes of one batch are written over another batch of the same file."""
ROT_KINDS = (BIT_ROT, MISDIRECTED)
"""Kinds of faults after which bytes on a disk differ from those written."""
BLACKOUT = "blackout"
"""Kind of fault by which all nodes lose power at once; only possible where every acknowledged record is durable."""
HALVES, BRIDGE, RING, CONTROLLERS_CUT, CLIENTS_CUT = SHAPE_KINDS = (
    "halves",
    "bridge",
    "ring",
    "controllers cut off",
    "clients cut off",
)
"""Kinds of partitions with a certain shape (`kraft.sim.nemesis.partition_shapes`)."""
HANG, REFUSE, RESET = CUT_MANNERS = ("hang", "refuse", "reset")
"""Manners of a cut. HANG: nothing passes and nothing closes. REFUSE: connections end and dials are refused. RESET:
connections end and are reset as soon as they are used."""
LATENCY, SLOW_LINK, BYTE_LIMIT = QUALITY_KINDS = ("latency", "slow link", "byte limit")
"""Kinds of faults of a link: data from one node to another is delayed, or slow, or limited to a number of bytes per
connection."""
SLICER, SLOW_CLOSE, TIMEOUT, RESET_PEER = TOXIC_KINDS = ("slicer", "slow close", "timeout", "reset peer")
"""Kinds of link faults that only toxiproxy has. Bytes come in small pieces (SLICER). Closes are delayed (SLOW_CLOSE).
Bytes are dropped, and each connection ends after a time (TIMEOUT). Each connection is reset a time after its next bytes
(RESET_PEER). `kraft sim` has none of them."""
STREAMS = ("", "up", "down")
"""Selections of connections on which a link fault acts: all, those that the sender dialled, or those that it accepted.
"""
ALL_CLIENTS = -1
"""Value of a fault's `node` or `other` that stands for all clients, where a cluster can tell them from nodes."""
ROLLING = "rolling restart"
"""Kind of fault by which each node restarts cleanly in turn; the next node follows when all replicas are in sync."""
RARE_KINDS = (*SHAPE_KINDS, *QUALITY_KINDS, ROLLING)
FAULT_CLASSES = MappingProxyType(
    {
        "crash": (KILL, CLEAN_STOP, ROLLING, "stumble", "flap"),
        "power": (POWER_LOSS, BLACKOUT),
        "network": ("reset", CUT, CUT_ONE_WAY, ISOLATE, *SHAPE_KINDS, "stall", *QUALITY_KINDS),
        "time": ("clock", "pause"),
        "disk": ("slow disk", "full disk", "failing sync", EMPTY_DISK, DIRECTORY),
        "wear": WEAR_KINDS,
    }
)
"""Class of faults → kinds of faults. Each kind is in one class."""
FAULT_KINDS = tuple(kind for kinds in FAULT_CLASSES.values() for kind in kinds)
LINK_KINDS = ("reset", CUT, CUT_ONE_WAY, "stall", *QUALITY_KINDS)
"""Kinds of faults of the link between two nodes."""
WAY_KINDS = (*QUALITY_KINDS, *TOXIC_KINDS)
"""Kinds of faults in the direction from one node to another. If no other node is named, they affect all links of the
node in both directions."""
PAUSE = "pause"
ROLE_KINDS = (*CRASH_KINDS, "flap", BLACKOUT)
"""Kinds of faults that need not name a node: they choose a node by its role."""
WHOLE_KINDS = (HALVES, RING, CONTROLLERS_CUT, ROLLING, BLACKOUT)
"""Kinds of faults of the whole cluster, which name no node."""
NODELESS_KINDS = (*ROLE_KINDS, *WHOLE_KINDS, CLIENTS_CUT)
"""Kinds of faults that may name no node."""
PICKED_KINDS = (HALVES, BRIDGE, RING)
"""Kinds of faults whose details are selected by `pick`."""

ACTIVE_CONTROLLER, A_LEADER = LASTING_ROLES = ("active controller", "leader")
SHRUNK_LEADER, UNCOMMITTED_CONTROLLER, UNCOMMITTED_LEADER = MOMENT_ROLES = (
    "shrunk leader",
    "uncommitted controller",
    "uncommitted leader",
)
"""Roles that a node has only for a moment, for which crashes wait. SHRUNK_LEADER leads the partition whose ISR shrank
last, until the ISR grows. The others are the active controller, and the leader of any partition, while a record that it
has appended is not committed."""
OPEN, DECIDING, DECIDED, HALF_MARKED, COMPLETING, COMPLETE, UNMARKED_LEADER, OPEN_LEADER = TRANSACTION_ROLES = (
    "coordinator of an open transaction",
    "coordinator that writes a decision",
    "coordinator with a decision and no marker",
    "coordinator between two markers",
    "coordinator that writes a completion",
    "coordinator of a complete transaction",
    "leader of a partition without its marker",
    "leader of a partition with an open transaction",
)
"""Roles in the order of two-phase commit, for which crashes and pauses wait. A decision is a Prepare record, and a
completion a Complete record, which is written and not committed yet. Only runs with transactions have them."""
GROUP_COORDINATOR, WRITING_GROUP_COORDINATOR, REVOKING_GROUP_COORDINATOR = GROUP_ROLES = (
    "coordinator of the mixed group",
    "coordinator that writes records of the mixed group",
    "coordinator that waits for a revocation",
)
"""Roles of the coordinator of the group MIXED_GROUP, for which crashes and pauses wait. It writes while a record of the
group is not committed. It waits for a revocation while a member still has partitions that it must revoke. Only runs
with that group have them."""
SHARE_LEADER, ACKNOWLEDGING_LEADER, WRITING_SHARE_COORDINATOR = SHARE_ROLES = (
    "leader of records that share consumers hold",
    "leader with an acknowledgement in flight",
    "share coordinator that writes a state",
)
"""Roles of the brokers that serve the share groups, for which crashes and pauses wait. An acknowledgement is in flight
until the share coordinator has confirmed it. A share coordinator writes while a record of a state is not committed.
Only runs with share groups have them."""
PAUSED_ROLES = (*TRANSACTION_ROLES, *GROUP_ROLES, *SHARE_ROLES)
"""Roles for which pauses wait."""
AWAITED_ROLES = (*MOMENT_ROLES, *PAUSED_ROLES)
"""Roles for which crashes wait."""
ROLES = (*LASTING_ROLES, *AWAITED_ROLES)

IDEMPOTENT, PLAIN, LOOSE = PRODUCERS = ("producer-exact", "producer-plain", "producer-loose")
CLOSED_LOOP = "producer-closed-loop"
"""Name of the producer that sends the next record as soon as the last one is answered; other producers send at planned
times."""
SMALL_TOPICS = "producer-small-topics"
"""Name of the client that creates many topics in one request, and writes a few records to each."""
CONSUMER, REREADER, EXTRA, ADMIN = "consumer", "rereader", "extra", "admin"
MEMBERS = ("group-0", "group-1", "group-2")
CONSUMER_GROUP = "consumer-group"
"""Name of the client that consists of all members of a consumer group that use pykraft's consumer."""
CONSUMERS = tuple(f"{CONSUMER_GROUP}-{number}" for number in range(3))
"""Names of the hosts on which the members of CONSUMER_GROUP run."""
TRANSACTOR = "transactor"
"""Name of the client that consists of all transactional producers, and of the readers of what they write."""
TRANSACTORS = tuple(f"{TRANSACTOR}-{number}" for number in range(6))
"""Names of the hosts of transactional producers. Each transactional id has two, so that a producer can be replaced
while it still runs."""
COMMITTED_READER, TRANSACTION_JUDGE, COORDINATOR_MOVER = "committed-reader", "transaction-judge", "coordinator-mover"
TRANSACTION_HOSTS = (*TRANSACTORS, COMMITTED_READER, TRANSACTION_JUDGE, COORDINATOR_MOVER)
"""Names of all hosts of the transactional producers and of the readers of what they write."""
MIXED_GROUP = "mixed-group"
"""Name of a consumer group, and of the client that consists of its members. They use the classic or the consumer
protocol, and all of them may change from one to the other."""
MIXED_MEMBERS = tuple(f"{MIXED_GROUP}-{number}" for number in range(4))
"""Names of the hosts of the members of MIXED_GROUP."""
STATIC_MEMBERS = MIXED_MEMBERS[2:]
"""Names of the hosts whose members are static."""
MIXED_PRODUCER, MIXED_ADMIN = "mixed-group-producer", "mixed-group-admin"
MIXED_HOSTS = (*MIXED_MEMBERS, MIXED_PRODUCER, MIXED_ADMIN)
"""Names of all hosts of MIXED_GROUP, and of what is written for it."""
SHARE_GROUP = "share-group"
"""Name of a share group, and of the client that consists of its members and those of SHARE_GROUP_COMMITTED."""
SHARE_GROUP_COMMITTED = "share-group-committed"
"""Name of a share group that reads the same records, but not those of aborted transactions."""
SHARE_MEMBERS = tuple(f"{SHARE_GROUP}-{number}" for number in range(6))
"""Names of the hosts of the members of both share groups."""
SHARE_GROUP_OF = MappingProxyType(
    {host: SHARE_GROUP if number < 4 else SHARE_GROUP_COMMITTED for number, host in enumerate(SHARE_MEMBERS)}
)
"""Name of a host → the share group of its member."""
SHARE_PRODUCER, SHARE_ADMIN = "share-group-producer", "share-group-admin"
SHARE_HOSTS = (*SHARE_MEMBERS, SHARE_PRODUCER, SHARE_ADMIN)
"""Names of all hosts of the share groups, and of what is written for them."""
MOVER, DIRECTORY_MOVER, VOTER_CHANGER = "mover", "directory-mover", "voter-changer"
TRIMMER, RETAINER, CONFIGURER, ELECTOR = "trimmer", "retainer", "configurer", "elector"
REGISTRARS = ("registrar-0", "registrar-1")

SEND, SEND_TOO = SENDER_VERBS = ("send", "send too")
CREATE_SMALL = "create small"
READ_AGAIN = "read again"
DELETE, ADD_PARTITION, SET_CONFIG, ELECT = ADMIN_VERBS = ("delete", "add partition", "set config", "elect leaders")
MOVE, CANCEL_MOVE, THROTTLED_MOVE = MOVER_VERBS = ("move", "cancel move", "throttled move")
CHANGE_DIRECTORY = "change directory"
DELETE_RECORDS = "delete records"
SET_RETENTION = "set retention"
SET_BROKER_CONFIG, DELETE_BROKER_CONFIG = CONFIGURER_VERBS = ("set broker config", "delete broker config")
ELECT_PREFERRED = "elect preferred leader"
ADD_VOTER, REMOVE_VOTER = VOTER_VERBS = ("add voter", "remove voter")
CREATE, VALIDATE_CREATE, DELETE_BY_ID = "create", "validate create", "delete by id"
CREATE_PARTITIONS, VALIDATE_PARTITIONS = "create partitions", "validate partitions"
TOPIC_VERBS = (CREATE, VALIDATE_CREATE, DELETE, DELETE_BY_ID, CREATE_PARTITIONS, VALIDATE_PARTITIONS)
COMMIT, FETCH = OFFSET_VERBS = ("commit", "fetch")
LEAVE, BE_SILENT, FORGET, JOIN_AGAIN = PRANKS = ("leave", "be silent", "forget who it is", "join again")
START_MEMBER, END_MEMBER, KILL_MEMBER = "start member", "end member", "kill member"
CANCEL_POLL, BE_BUSY = "cancel poll", "be busy"
GROUP_VERBS = (START_MEMBER, END_MEMBER, KILL_MEMBER, CANCEL_POLL, BE_BUSY)
COMMIT_TRANSACTION, ABORT_TRANSACTION, OUTLAST_TIMEOUT = "commit transaction", "abort transaction", "outlast timeout"
REPLACE_PRODUCER, KILL_PRODUCER, MOVE_COORDINATOR = "replace producer", "kill producer", "move coordinator"
RAISE_TRANSACTION_VERSION = "raise transaction version"
TRANSACTION_VERBS = (
    COMMIT_TRANSACTION,
    ABORT_TRANSACTION,
    OUTLAST_TIMEOUT,
    REPLACE_PRODUCER,
    KILL_PRODUCER,
    MOVE_COORDINATOR,
    RAISE_TRANSACTION_VERSION,
)
CUT_OFF_MEMBER, CHANGE_SUBSCRIPTION = "cut off member", "change subscription"
GROW_TOPIC, ADD_TOPIC, SET_GROUP_CONFIG = "grow topic", "add topic", "set group config"
MIXED_ADMIN_VERBS = (GROW_TOPIC, ADD_TOPIC, SET_GROUP_CONFIG, MOVE_COORDINATOR)
MIXED_GROUP_VERBS = (*GROUP_VERBS, CUT_OFF_MEMBER, CHANGE_SUBSCRIPTION, *MIXED_ADMIN_VERBS)
HOLD_RECORDS, MOVE_LEADER = "hold records", "move leader"
SET_SHARE_OFFSETS, DELETE_SHARE_OFFSETS, DELETE_SHARE_GROUP = SHARE_OFFSET_VERBS = (
    "set share group offsets",
    "delete share group offsets",
    "delete share group",
)
SHARE_ADMIN_VERBS = (MOVE_COORDINATOR, MOVE_LEADER, GROW_TOPIC, SET_GROUP_CONFIG, *SHARE_OFFSET_VERBS)
SHARE_VERBS = (START_MEMBER, END_MEMBER, KILL_MEMBER, CUT_OFF_MEMBER, HOLD_RECORDS, *SHARE_ADMIN_VERBS)
CLIENT_VERBS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys((*PRODUCERS, EXTRA), SENDER_VERBS),
        CLOSED_LOOP: (SEND,),
        SMALL_TOPICS: (CREATE_SMALL, *SENDER_VERBS),
        CONSUMER: (),
        REREADER: (READ_AGAIN,),
        ADMIN: ADMIN_VERBS,
        **dict.fromkeys(MEMBERS, PRANKS),
        CONSUMER_GROUP: GROUP_VERBS,
        TRANSACTOR: TRANSACTION_VERBS,
        MIXED_GROUP: MIXED_GROUP_VERBS,
        SHARE_GROUP: SHARE_VERBS,
        MOVER: MOVER_VERBS,
        DIRECTORY_MOVER: (CHANGE_DIRECTORY,),
        VOTER_CHANGER: VOTER_VERBS,
        TRIMMER: (DELETE_RECORDS,),
        RETAINER: (SET_RETENTION,),
        CONFIGURER: CONFIGURER_VERBS,
        ELECTOR: (ELECT_PREFERRED,),
        **dict.fromkeys(REGISTRARS, (*TOPIC_VERBS, *OFFSET_VERBS)),
    }
)
"""Client → names of its operations."""
CLIENTS = tuple(CLIENT_VERBS)
_CLIENTS_OF_SEVERAL_HOSTS = (CONSUMER_GROUP, TRANSACTOR, MIXED_GROUP, SHARE_GROUP)
CLIENT_HOSTS = (*(client for client in CLIENTS if client not in _CLIENTS_OF_SEVERAL_HOSTS), *CONSUMERS)
"""Names of the hosts of all clients but the transactor, the mixed group and the share groups."""


def client_hosts_of(work: Collection[str]) -> tuple[str, ...]:
    """Return the hosts of clients that faults of links cut off, in a run with these clients."""
    transactional = TRANSACTION_HOSTS if TRANSACTOR in work else ()
    shared = SHARE_HOSTS if SHARE_GROUP in work else ()
    return (*CLIENT_HOSTS, *transactional, *(MIXED_HOSTS if MIXED_GROUP in work else ()), *shared)


def allows(shape: ClusterShape, kind: str) -> bool:
    """Return whether a cluster of this shape must tolerate faults of this kind."""
    nodes = len(shape.node_ids)
    rules = {
        BLACKOUT: shape.is_durable,
        DIRECTORY: shape.log_dirs > 1,
        HALVES: nodes > 1,
        BRIDGE: nodes > 2,
        RING: nodes > 3,  # in a ring of three nodes each reaches both others
        CONTROLLERS_CUT: not shape.combined,
    }
    return rules.get(kind, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. Faults of the same `lane` happen one after the other; a fault that lasts longer than planned delays
    the next.

    Target: `node`, or the node that has `role` at the time (`pick` selects one of several). Links run to `other`. In
    halves, a bridge and a ring `pick` arranges the nodes; `node` is the bridge. Clients are cut off from `node`, or
    from all nodes if none is named.

    Times: `duration_ms` is how long the fault lasts, `back_ms` how long a node stays down. A kill with a duration is an
    exception, which ends the process within this time.

    `amount` depends on the kind:

    - clock: ms by which it steps
    - stumble: number of kills
    - flap: 1 if power is lost
    - bit rot, misdirected write: 1 if the log is replicated again in the end, 0 if its file is restored
    - latency: ms; `jitter_ms` is the maximum random addition
    - slow link: bytes per second
    - byte limit: bytes that pass on each connection
    - slicer: bytes of an average piece
    - other toxics: ms until a connection closes (of a timeout 0: not before the fault ends)

    The last fields apply only to clusters behind toxiproxy."""

    at_ms: int
    kind: str
    lane: int = 0
    role: str = ""
    node: int = 0
    pick: int = 0
    other: int = 0
    duration_ms: int = 0
    back_ms: int = 0
    amount: int = 0
    jitter_ms: int = 0
    manner: str = ""
    """Manner of a cut, one of CUT_MANNERS; "" is a hang."""
    variation_bytes: int = 0
    """Pieces of a slicer are larger or smaller by at most this many bytes."""
    delay_us: int = 0
    """Pause of a slicer after each piece."""
    toxicity_percent: int = 100
    """Percentage of connections that are affected; whether a connection is affected is drawn at random."""
    stream: str = ""
    """Connections that are affected, one of STREAMS."""

    @property
    def needs_toxics(self) -> bool:
        """Whether only a cluster behind toxiproxy can have this fault."""
        return self.kind in TOXIC_KINDS or self.toxicity_percent != 100 or bool(self.stream)

    @property
    def quality(self) -> LinkQuality:
        """Return the link's quality during a fault of a link."""
        return LinkQuality(
            latency_ms=self.amount if self.kind == LATENCY else 0,
            jitter_ms=self.jitter_ms,
            bytes_per_second=self.amount if self.kind == SLOW_LINK else 0,
            bytes_max=self.amount if self.kind == BYTE_LIMIT else 0,
        )

    @property
    def quality_words(self) -> str:
        """Describe the link's quality, for readers."""
        return {
            LATENCY: f"takes {self.amount} ms longer, and up to {self.jitter_ms} ms more",
            SLOW_LINK: f"arrives with {self.amount} bytes per second",
            BYTE_LIMIT: f"ends each connection after {self.amount} bytes",
        }[self.kind]


@dataclass(frozen=True, slots=True)
class PlannedOperation:
    """One operation of a client, `at_ms` after the clients started, or as soon as its last operation is done.

    The meaning of `target` and `amount` depends on the operation. A target selects one of the objects that exist then.

    - send: to partition `target` (of the extra client: to an extra topic), with `amount` bytes of padding
    - send too: the same, in one step with the operation before it, so that both go into one batch if there is room
    - create small: small topic `target`; `amount` selects the number of replicas; its client sends only to created
      topics
    - read again: partition `target`, from its begin
    - the administrator's: extra topic number `target`, created if missing; `amount` selects the setting, or the
      partitions
    - the movers': partition `target`; `amount` selects the brokers, or the broker's directory
    - throttled move: `amount` also selects the rate; the next move waits until the throttle is removed
    - the voter changer's: controller `target`
    - the trimmer's: partition `target` of the extra topics; `amount` selects the offset
    - the retainer's: extra topic `target`; `amount` selects how much it keeps
    - the configurer's: broker `target`, or all of them; `amount` selects the setting
    - the elector's: partition `target`
    - the consumer group's: member `target`; `amount` selects how a started member commits, and its assignor
    - be busy: exceed the maximum poll interval
    - the mixed group's: member `target`; `amount` selects how a started member works, and the new subscription
    - cut off member: for `amount` ms, nothing passes between the member and any node
    - grow topic, add topic: topic `target` of the mixed group, or the topic of the share groups
    - set group config: `amount` selects the setting
    - the share groups': member `target`; `amount` selects how a started member acknowledges
    - hold records: acknowledge the next records only after their locks have expired
    - move leader: let another broker lead a partition of the share groups' topic
    - set or delete share group offsets, delete share group: share group `target`; `amount` selects whether its members
      leave before, and the new start offset
    - the transactor's (transactional producers): producer `target`; `amount` selects the number of records and their
      partitions
    - replace producer: start another with the same transactional id, while this one continues
    - outlast timeout: keep a transaction open until the coordinator aborts it
    - move coordinator: let another broker lead the partition of this producer's coordinator
    - raise transaction version: finalize level 2 of transaction.version
    - the registrars' (clients that compete for topics and offsets): topic `target`, with the number of partitions by
      `amount`; or offset `target`, where `amount` selects the kind of read"""

    at_ms: int
    verb: str
    target: int = 0
    amount: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a run carries out. Times of faults and operations count from the creation of the topic."""

    seed: int = 1
    options: WorldOptions = field(default_factory=WorldOptions)
    is_quick: bool = True
    """Whether links and disks are fast enough that a death must be noticed within the time limits of failure detection
    (K6)."""
    shape: ClusterShape = field(default_factory=lambda: ClusterShape(overrides=dict(OVERRIDES)))
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    compression: str = "none"
    batch_bytes: int = 1_800
    """Maximum batch size of a producer; it is below the smallest segment size."""
    small_sizes: tuple[str, ...] = ()
    """Groups of production's size limits that are reduced (`kraft.sim.cluster.sizes`)."""
    transaction_version: int = TRANSACTION_VERSION_MAX
    """Level of transaction.version when the clients start. It matters only to transactional producers."""
    duration_ms: int = 30_000
    faults: tuple[Fault, ...] = ()
    work: Mapping[str, tuple[PlannedOperation, ...]] = field(default_factory=dict)
    """Client → its operations."""
    ends_early: bool = False
    """Whether the run ends with its faults, so that nothing is healed and the final reader does not run."""

    @property
    def operations(self) -> int:
        return sum(map(len, self.work.values()))
