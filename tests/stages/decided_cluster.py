"""A small cluster as a value: image, clock, sessions, and methods that decide commands on it like the controller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from kraft.config import NodeConfig
from kraft.control import AdminRequest, BrokerSession, Context, Decision, decide
from kraft.control.controllers import bootstrap_events
from kraft.control.features import SUPPORTED_FEATURES
from kraft.image import Endpoint, Event, MetadataImage, PartitionState, replay
from kraft.image.events import BrokerRegistrationChange, Partition, RegisterBroker, Topic
from kraft.wire import messages

CLUSTER_ID = "test-cluster"

PROPERTIES = {
    "node.id": "101",
    "process.roles": "controller",
    "listeners": "CONTROLLER://localhost:9192",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "controller.quorum.voters": "101@localhost:9192",
    "log.dirs": "/data",
}


def node_config(**properties: str) -> NodeConfig:
    return NodeConfig.parse({**PROPERTIES, **{key.replace("_", "."): value for key, value in properties.items()}})


CONFIG = node_config()


def topic_id(number: int) -> UUID:
    return UUID(int=(1 << 120) + number)


def directory_id(broker_id: int, number: int = 0) -> UUID:
    return UUID(int=(2 << 120) + broker_id * 100 + number)


def incarnation_id(broker_id: int, life: int = 1) -> UUID:
    return UUID(int=(3 << 120) + broker_id * 100 + life)


class Cluster:
    """A small cluster. It is mutable on purpose: each `decide` replays its events into `image`, like a controller into
    its speculative image."""

    def __init__(self, config: NodeConfig = CONFIG) -> None:
        self.config = config
        self.image = MetadataImage()
        self.now_ms = 1_000_000
        self.sessions: dict[int, BrokerSession] = {}
        self.being_fenced: frozenset[int] = frozenset()
        self.directories_going_offline: frozenset[UUID] = frozenset()
        self.recently_fenced: frozenset[int] = frozenset()
        self.seed = 1
        self.authorize: Any = lambda *_arguments: True
        self.apply(bootstrap_events(self.context()))

    def context(self) -> Context:
        self.seed += 1
        return Context(
            now_ms=self.now_ms,
            next_offset=self.image.offset,
            seed=self.seed,
            config=self.config,
            cluster_id=CLUSTER_ID,
            sessions=self.sessions,
            being_fenced=self.being_fenced,
            directories_going_offline=self.directories_going_offline,
            recently_fenced=self.recently_fenced,
            authorize=self.authorize,
        )

    def apply(self, events: Iterable[Event]) -> None:
        listed = list(events)
        self.image = replay(self.image, listed, self.image.offset + len(listed), 1)

    def decide(self, command: Any) -> Decision:
        """Decide one command, without the commands that follow from it."""
        decision = decide(self.image, self.context(), command)
        self.apply(decision.events)
        return decision

    def decide_all(self, command: Any) -> Any:
        """Decide a command and all commands that follow from it. Return the last reply."""
        decision = self.decide(command)
        while decision.follow_up is not None:
            decision = self.decide(decision.follow_up)
        return decision.reply

    def admin(self, api_key: int, **fields: Any) -> Any:
        """Decide a client's request; return the response."""
        return self.decide_all(self.admin_request(api_key, **fields))

    def admin_request(self, api_key: int, **fields: Any) -> AdminRequest:
        request = messages.build(messages.request_class(api_key), **fields)
        return AdminRequest(api_key=api_key, request=request)

    def add_broker(
        self,
        broker_id: int,
        *,
        fenced: bool = False,
        rack: str | None = None,
        host: str | None = None,
        directories: int = 1,
        connected: bool = True,
    ) -> int:
        """Add a registered broker with an active session; return its broker epoch."""
        epoch = self.image.offset
        record = RegisterBroker(
            broker_id,
            incarnation_id(broker_id),
            epoch,
            (Endpoint("PLAINTEXT", "localhost", 9000 + broker_id, "PLAINTEXT"),),
            rack,
            host,
            True,
            False,
            tuple(directory_id(broker_id, number) for number in range(directories)),
            SUPPORTED_FEATURES,
        )
        self.apply([record])
        if not fenced:
            self.apply([BrokerRegistrationChange(broker_id, epoch, fenced=False)])
        self.sessions[broker_id] = BrokerSession(epoch, self.now_ms, 1000 + broker_id, connected, self.image.offset)
        return epoch

    def add_brokers(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.add_broker(broker_id)

    def add_topic(self, name: str, *partitions: Partition | tuple[int, ...], number: int = 1) -> UUID:
        """Add a topic. Its partitions are given as replicas (all in sync, the first one leads) or as events."""
        events: list[Event] = [Topic(name, topic_id(number))]
        for index, given in enumerate(partitions):
            if isinstance(given, Partition):
                events.append(given)
            else:
                events.append(Partition(topic_id(number), index, given, given, leader=given[0]))
        self.apply(events)
        return topic_id(number)

    def partition(self, name: str, index: int = 0) -> PartitionState:
        topic = self.image.topics.get(name)
        assert topic is not None
        return topic.partition(index)

    def epoch(self, broker_id: int) -> int:
        return self.image.brokers[broker_id].broker_epoch

    def fence(self, *broker_ids: int) -> None:
        """Replay only the record that fences a broker, without the leader changes that would follow."""
        self.apply(BrokerRegistrationChange(one, self.epoch(one), fenced=True) for one in broker_ids)
