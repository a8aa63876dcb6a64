"""The plan of a run: all that a seed draws, as one value, before anything happens.

A run carries out its plan and draws nothing of it on the way, so a plan can be kept in a file, replayed, and made
smaller. Only what a world is like from moment to moment (how long a piece travels, in which order tasks run) still
comes from the seed, in named streams: taking one fault or operation away does not reshuffle the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kraft.seam import LinkQuality
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.world.options import WorldOptions

SCHEDULE_VERSION = 12
"""Rises when a seed draws another plan than before. What stands in a file is not touched by that."""

PLAN_MS_MAX = 24 * 60 * 60 * 1000
"""No time of a plan is longer: a day, for which a run takes hours."""

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
"""One log directory of a broker is out of reach: only where brokers have several."""
BIT_ROT, READ_ERROR, MISDIRECTED = WEAR_KINDS = ("bit rot", "read error", "misdirected write")
"""Bytes of a log change under its CRC; reads from a log directory fail; bytes of one batch land in another one of the
same file. They are of brokers."""
ROT_KINDS = (BIT_ROT, MISDIRECTED)
"""Bytes are not as they were written."""
BLACKOUT = "blackout"
"""All nodes lose power at once: only where every acknowledged record is on the device."""
HALVES, BRIDGE, RING, CONTROLLERS_CUT, CLIENTS_CUT = SHAPE_KINDS = (
    "halves",
    "bridge",
    "ring",
    "controllers cut off",
    "clients cut off",
)
"""Partitions of a certain shape (`kraft.sim.nemesis.partition_shapes`)."""
HANG, REFUSE, RESET = CUT_MANNERS = ("hang", "refuse", "reset")
"""Nothing passes and nothing closes; connections end and dials are refused; connections end and are reset as soon as
they are used."""
LATENCY, SLOW_LINK, BYTE_LIMIT = QUALITY_KINDS = ("latency", "slow link", "byte limit")
"""What one node sends to another arrives late, or slowly, or not beyond so many bytes of a connection."""
SLICER, SLOW_CLOSE, TIMEOUT, RESET_PEER = TOXIC_KINDS = ("slicer", "slow close", "timeout", "reset peer")
"""What only toxiproxy can do to a link: bytes come in small pieces; closes come late; bytes are dropped, and each
connection ends after a time; each is reset a time after its next bytes. `kraft sim` neither draws nor has them."""
STREAMS = ("", "up", "down")
"""Connections on which a fault of a link acts: all of them, those that the sender dialled, those that it accepted."""
ALL_CLIENTS = -1
"""In the place of a fault's node or other: all clients, where a cluster can tell them from nodes."""
ROLLING = "rolling restart"
"""Each node in turn stops in order and starts again, the next one when all replicas are in sync."""
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
"""What breaks → the kinds of faults in which it does. Each kind is in one class."""
FAULT_KINDS = tuple(kind for kinds in FAULT_CLASSES.values() for kind in kinds)
LINK_KINDS = ("reset", CUT, CUT_ONE_WAY, "stall", *QUALITY_KINDS)
"""Faults between two nodes."""
WAY_KINDS = (*QUALITY_KINDS, *TOXIC_KINDS)
"""Faults of what one end sends to another; of all links of a node, both ways, if no other is named."""
ROLE_KINDS = (*CRASH_KINDS, "flap", BLACKOUT)
"""Faults that need no node to be named: they find whom they hit."""
WHOLE_KINDS = (HALVES, RING, CONTROLLERS_CUT, ROLLING, BLACKOUT)
"""Faults of the whole cluster: they name no node."""
NODELESS_KINDS = (*ROLE_KINDS, *WHOLE_KINDS, CLIENTS_CUT)
"""Faults that may name no node."""
PICKED_KINDS = (HALVES, BRIDGE, RING)
"""Faults of which `pick` says how they are."""

ACTIVE_CONTROLLER, A_LEADER = LASTING_ROLES = ("active controller", "leader")
SHRUNK_LEADER, UNCOMMITTED_CONTROLLER, UNCOMMITTED_LEADER = MOMENT_ROLES = (
    "shrunk leader",
    "uncommitted controller",
    "uncommitted leader",
)
"""Roles that somebody has for a moment only, and crashes wait for it: the leader of the partition whose in-sync
replicas became fewer last, while they are, and the active controller, or the leader of any partition, while something
that it has appended is not committed."""
ROLES = (*LASTING_ROLES, *MOMENT_ROLES)

IDEMPOTENT, PLAIN, LOOSE = PRODUCERS = ("producer-exact", "producer-plain", "producer-loose")
CLOSED_LOOP = "producer-closed-loop"
"""It sends the next record as soon as the last one was answered; the others send by the clock."""
SMALL_TOPICS = "producer-small-topics"
"""It creates many topics in one request, and writes a few records to each."""
CONSUMER, REREADER, EXTRA, ADMIN = "consumer", "rereader", "extra", "admin"
MEMBERS = ("group-0", "group-1", "group-2")
CONSUMER_GROUP = "consumer-group"
"""All members of a group of our own consumers."""
CONSUMERS = tuple(f"{CONSUMER_GROUP}-{number}" for number in range(3))
"""Their hosts."""
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
"""What each client can do."""
CLIENTS = tuple(CLIENT_VERBS)
CLIENT_HOSTS = (*(client for client in CLIENTS if client != CONSUMER_GROUP), *CONSUMERS)


def allows(shape: ClusterShape, kind: str) -> bool:
    """Whether a cluster of this shape must stand such faults."""
    nodes = len(shape.node_ids)
    rules = {
        BLACKOUT: shape.is_durable,
        DIRECTORY: shape.log_dirs > 1,
        HALVES: nodes > 1,
        BRIDGE: nodes > 2,
        RING: nodes > 3,  # each of three sees both others
        CONTROLLERS_CUT: not shape.combined,
    }
    return rules.get(kind, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong. Those of a lane happen one after the other: one that lasts puts off the next.

    It hits `node`, or who has `role` when it happens (`pick` says which, if there are several); links run to `other`.
    Of halves, a bridge and a ring `pick` says who stands where; a bridge is `node`. Clients are cut off from `node`; if
    none is named, from all nodes.
    `duration_ms` is how long it lasts, `back_ms` how long a node stays down. A kill that lasts is an exception, which
    ends the process in this time. `amount`: of a clock, by how many ms it
    steps; of a stumble, how often; of a flap, 1 if power is lost; of bit rot and a misdirected write, 1 if the log is
    replicated anew in the end, and 0 if its file is restored; of latency the ms, of a slow link the bytes per second,
    of a byte limit the bytes that pass on each connection, of a slicer the bytes of an average piece, of other toxics
    the ms until a connection closes (of a timeout 0: not before the fault ends). `jitter_ms`: latency is up to so much
    more. Only clusters behind toxiproxy have the fields that come last.
    """

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
    """How a cut behaves, one of CUT_MANNERS; "" is a hang."""
    variation_bytes: int = 0
    """Pieces of a slicer are larger or smaller by up to so many bytes."""
    delay_us: int = 0
    """A slicer pauses so long after each piece."""
    toxicity_percent: int = 100
    """So many of a hundred connections are hit, drawn for each."""
    stream: str = ""
    """Which connections are hit, one of STREAMS."""

    @property
    def needs_toxics(self) -> bool:
        """Whether only a cluster behind toxiproxy can have it."""
        return self.kind in TOXIC_KINDS or self.toxicity_percent != 100 or bool(self.stream)

    @property
    def quality(self) -> LinkQuality:
        """Of a fault of a link's quality: how bytes fare while it lasts."""
        return LinkQuality(
            latency_ms=self.amount if self.kind == LATENCY else 0,
            jitter_ms=self.jitter_ms,
            bytes_per_second=self.amount if self.kind == SLOW_LINK else 0,
            bytes_max=self.amount if self.kind == BYTE_LIMIT else 0,
        )

    @property
    def quality_words(self) -> str:
        """The same for people."""
        return {
            LATENCY: f"takes {self.amount} ms longer, and up to {self.jitter_ms} ms more",
            SLOW_LINK: f"arrives with {self.amount} bytes per second",
            BYTE_LIMIT: f"ends each connection after {self.amount} bytes",
        }[self.kind]


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that a client does, `at_ms` after the clients began, or as soon as it has done what came before.

    send: to partition `target` (of the extra client: to one of the topics that stand), `amount` bytes of filling. send
    too: the same, in one step with the operation before it, so that both leave in one batch if there is room. create
    small: small topic `target`, and `amount` says with how many replicas; what its client sends is for small topic
    `target`, if that was created. read again: partition `target`, from its begin. The
    administrator's: topic slot `target`; what is not there is created; `amount` chooses the setting, or the partitions.
    The movers': partition `target` of those that there are, to the brokers, or the broker's directory, that `amount`
    stands for; throttled move: at a rate that it stands for too, and what comes next waits until that is lifted. The
    voter changer's: controller `target` of those that there are. The trimmer's: partition `target` of the extra
    topics', up to where `amount` says. The retainer's: extra topic `target` of those that stand, and `amount` chooses
    how much it keeps. The configurer's: broker `target` of those that there are, or all of them, and `amount` chooses
    the setting. The elector's: partition `target` of those that there are. The consumer group's: member
    `target` of those that it may have, and `amount` says how one that is started commits, and by which assignor it
    assigns; be busy: for longer than it may between two polls. The registrars': topic
    `target`, to which `amount` says how many partitions, or offset `target`, and `amount` says how it is read.
    """

    at_ms: int
    verb: str
    target: int = 0
    amount: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run carries out. Times of faults and operations are counted from when the topic stands."""

    seed: int = 1
    options: WorldOptions = field(default_factory=WorldOptions)
    is_quick: bool = True
    """K6's times are binding."""
    shape: ClusterShape = field(default_factory=lambda: ClusterShape(overrides=dict(OVERRIDES)))
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    compression: str = "none"
    batch_bytes: int = 1_800
    """Largest batch of a producer, below the smallest segment."""
    small_sizes: tuple[str, ...] = ()
    """Which of production's sizes are small (`kraft.sim.cluster.sizes`)."""
    duration_ms: int = 30_000
    faults: tuple[Fault, ...] = ()
    work: Mapping[str, tuple[Operation, ...]] = field(default_factory=dict)
    """The clients that there are, and what each does."""
    ends_early: bool = False
    """The run ends with its faults: nothing is healed, and nobody reads what was written."""

    @property
    def operations(self) -> int:
        return sum(map(len, self.work.values()))
