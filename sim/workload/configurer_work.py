"""A client that changes settings of running brokers: those of each broker, and the defaults of all brokers (KIP-226).

An acknowledged setting must be in the metadata (M11, checked by `SettingsLedger`). Each broker must use the committed
value and report it (M9).

Only settings that weaken no guarantee are changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kraft.client.admin import Admin, ConfigChange, ConfigOperation, ConfigResource, ConfigSource, ResourceType
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.records import KafkaError
from kraft.config import TopicConfig
from kraft.image import ConfigResourceType
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import CONFIGURER, DELETE_BROKER_CONFIG, TOPIC, PlannedOperation
from kraft.sim.workload.planned_requests import REQUEST_TIMEOUT_MS, make_requests
from kraft.sim.workload.settings_ledger import SettingsLedger

SETTINGS = (
    ("log.segment.delete.delay.ms", "0"),
    ("log.segment.delete.delay.ms", "3000"),
    ("log.index.interval.bytes", "0"),
    ("log.index.interval.bytes", "300"),
    ("log.flush.interval.messages", "1"),
    ("log.flush.interval.ms", "200"),
    ("log.cleaner.backoff.ms", "500"),
    ("message.max.bytes", "500000"),
    ("num.recovery.threads.per.data.dir", "3"),
)
"""Settings that may be changed. None of them makes a segment of the offsets topic roll: it would be compacted, which
the checks of replicas do not follow."""
NAMES = tuple(dict.fromkeys(name for name, _ in SETTINGS))
ALL_BROKERS = ""
IN_FORCE_MS_MAX = 5_000
REMOVED = None
DYNAMIC = (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER)


class Configurer:
    """Client that changes settings of brokers. `changed` counts acknowledged changes; `compared` counts the settings of
    brokers that were compared at the end."""

    def __init__(self, cluster: SimCluster, settings: SettingsLedger) -> None:
        self.changed = 0
        self.compared = 0
        self._cluster = cluster
        self._settings = settings
        self._has_asked = False

    async def run(self, work: Iterable[PlannedOperation]) -> None:
        """Send the plan's requests that change settings of brokers, each at its time."""
        await make_requests(self._cluster, CONFIGURER, work, self._change)

    async def _change(self, cluster: SimCluster, admin: Admin, operation: PlannedOperation) -> None:
        brokers = (ALL_BROKERS, *map(str, cluster.shape.broker_ids))
        broker = brokers[operation.target % len(brokers)]
        name, value = SETTINGS[operation.amount % len(SETTINGS)]
        is_removal = operation.verb == DELETE_BROKER_CONFIG
        wanted = REMOVED if is_removal else value
        self._has_asked = True
        told = cluster.watch.chronicle.begin_operation(CONFIGURER, f"{name}={wanted} of {broker or 'all brokers'}")
        asked = self._settings.ask(CONFIGURER, ConfigResourceType.BROKER, broker, {name: wanted})
        change = ConfigChange(ConfigOperation.DELETE if is_removal else ConfigOperation.SET, name, wanted)
        try:
            await admin.configs.alter(ConfigResource(ResourceType.BROKER, broker), [change])
        except (KafkaError, ClusterUnreachable, *CONNECTION_FAILURES) as problem:
            cluster.watch.chronicle.end_operation(told, f"unknown: {problem}", None)
            return
        self._settings.acknowledge(asked)
        self.changed += 1
        cluster.watch.chronicle.end_operation(told, "done", True)

    # checks at the end of the run

    async def judge(self) -> None:
        """Compare the settings committed at the end with those that the brokers use and report. Call it when all
        brokers are up."""
        if not self._has_asked:
            return
        await self._cluster.wait_until(lambda: not list(self._outdated()), IN_FORCE_MS_MAX)
        for broker in self._outdated():
            self._fail("M9", "a broker works by other settings than the metadata say", broker)
        servers, seam = self._cluster.shape.bootstrap_servers, self._cluster.world.node(CONFIGURER)
        async with Admin(bootstrap_servers=servers, timeout_ms=REQUEST_TIMEOUT_MS, seam=seam) as admin:
            for broker in self._cluster.shape.broker_ids:
                await self._judge_reported_settings(admin, broker)

    def _outdated(self) -> Iterator[int]:
        """Return the brokers that do not use the committed settings, their own or the topic's."""
        image = self._cluster.image
        for broker in self._cluster.shape.broker_ids:
            observer, static = self._cluster.watch.nodes[broker], self._cluster.shape.config(broker)
            dynamic = dict(image.broker_configs(broker))
            node = observer.node.broker
            due = static.overlay(dynamic), TopicConfig.resolve(image.topic_configs(TOPIC), dynamic, static)
            held = None if node is None else node.broker.dynamic_configs
            if held is None or due != (held.node, held.topic(TOPIC)):
                yield broker

    async def _judge_reported_settings(self, admin: Admin, broker: int) -> None:
        entries = await admin.configs.describe(ConfigResource(ResourceType.BROKER, str(broker)))
        told = {entry.name: entry for entry in entries}
        own, of_all = self._committed(str(broker)), self._committed(ALL_BROKERS)
        for name in NAMES:
            self.compared += 1
            source = DYNAMIC[0] if name in own else DYNAMIC[1] if name in of_all else None
            due = own.get(name, of_all.get(name))
            is_told = told[name].source in DYNAMIC if source is None else told[name].source is not source
            if is_told or (source is not None and told[name].value != due):
                facts = {"name": name, "told": told[name].value, "source": told[name].source.name, "due": due}
                self._fail("M9", "a broker tells another setting than the metadata say", broker, **facts)

    def _committed(self, broker: str) -> dict[str, str]:
        return dict(self._cluster.image.configs_of(ConfigResourceType.BROKER, broker))

    def _fail(self, check: str, text: str, broker: int | str, **facts: object) -> None:
        self._cluster.report.fail(check, text, node=int(broker), **facts)
