"""KafkaTarget: a cluster of Apache Kafka processes behind toxiproxy, created for one run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType

from kraft.deploy.launch.processes import identify
from kraft.seam import Address, Seam
from kraft.sim.chaos.apache.apache_kafka import ProxiedApacheKafka
from kraft.sim.chaos.apache.kafka_files import version_of
from kraft.sim.chaos.apache.kafka_layout import CLIENT, ListenerKey
from kraft.sim.chaos.clusters.process_lives import ProcessLives
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.chaos.proxies.binary import VERSION
from kraft.sim.chaos.proxies.links import Link, LinkProxies
from kraft.sim.chaos.proxies.server import ToxiproxyServer
from kraft.sim.chaos.proxies.toxics import ByteConditions, ConnectionPolicy
from kraft.sim.chaos.scenarios.scenario import Scenario
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.partition_shapes import CLIENTS

KINDS_OF_SOURCES = MappingProxyType({CLIENT: CLIENTS, "BROKER": -1, "CONTROLLER": -2, "QUORUM": -3})
"""Listener → the end of a link, as faults name it, that represents all sources that dial this listener."""


class KafkaListenerProxies:
    """Proxies in front of each listener of each node; see kraft.sim.chaos.apache.apache_kafka.KafkaProxies."""

    def __init__(self, folder: Path, warden: Warden) -> None:
        self._server = ToxiproxyServer(folder, environment=warden.environment)
        self._proxies: LinkProxies | None = None

    def advertise(self, bound: Mapping[ListenerKey, Address]) -> Mapping[ListenerKey, Address]:
        self._server.start()
        links = {_link(key): address for key, address in bound.items()}
        self._proxies = LinkProxies(self._server, links)
        return {key: self._proxies.address(_link(key)) for key in bound}

    def cut(self, manners: Mapping[ListenerKey, str]) -> None:
        ways: dict[Link, ByteConditions] = {}
        policies: dict[Link, ConnectionPolicy] = {}
        for key, manner in manners.items():
            link = _link(key)
            if manner == plan.HANG:
                ways |= {link: ByteConditions(is_hung=True), link[::-1]: ByteConditions(is_hung=True)}
            else:
                policies[link] = ConnectionPolicy(manner)
        self._made.apply(ways, policies)

    def node_up(self, node: int) -> None:
        self._made.node_up(node)

    def node_down(self, node: int) -> None:
        self._made.node_down(node)

    def require_running(self) -> None:
        """Raise ToxiproxyError if toxiproxy has ended, because the clients' observations would no longer describe the
        cluster."""
        self._server.require_running()

    def close(self) -> None:
        if self._proxies is not None:
            self._proxies.close()
        self._server.stop()

    @property
    def _made(self) -> LinkProxies:
        assert self._proxies is not None
        return self._proxies


def _link(key: ListenerKey) -> Link:
    listener, node = key
    return KINDS_OF_SOURCES[listener], node


class KafkaTarget:
    """A cluster of Apache Kafka; see kraft.sim.chaos.targets. `libraries` is the folder of Kafka's jars."""

    kind = "kafka"

    def __init__(self, scenario: Scenario, folder: Path, warden: Warden, libraries: Path) -> None:
        wanted = scenario.cluster
        self._files, self._libraries = folder, libraries
        self._lives = ProcessLives()
        self._proxies = KafkaListenerProxies(folder, warden)
        self.cluster = ProxiedApacheKafka(
            libraries,
            self._proxies,
            controllers=wanted.controllers,
            brokers=wanted.brokers,
            combined=wanted.combined,
            settings=wanted.settings,
        )

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    @property
    def direct_servers(self) -> Mapping[int, str]:
        return dict(zip(self.cluster.broker_ids, self.cluster.direct_servers.split(","), strict=True))

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            "Apache Kafka's nodes dial each other at one address per kind of source, so no link of two nodes is cut",
        )

    @property
    def enforces_max_gap(self) -> bool:
        return False

    @property
    def is_lasting(self) -> bool:
        return False

    def open(self) -> None:
        self.cluster.open()

    def close(self) -> None:
        self.cluster.close()

    def client_seam(self) -> AbstractAsyncContextManager[Seam | None]:
        return nullcontext()

    def versions(self) -> Mapping[str, str]:
        return {"Apache Kafka": version_of(self._libraries), "toxiproxy": VERSION}

    def running(self) -> tuple[int, ...]:
        found = {node: self.cluster.pid(node) for node in self.cluster.node_ids}
        return self._lives.running({node: None if pid is None else identify(pid) for node, pid in found.items()})

    def facts(self) -> Mapping[str, float]:
        self._proxies.require_running()
        return self._lives.facts()

    def data(self) -> Mapping[int, Path]:
        return {node: self.cluster.folder / str(node) / "data" for node in self.cluster.node_ids}

    def logs(self) -> Mapping[str, Path]:
        nodes = {f"{node}.log": self.cluster.folder / str(node) / "server.log" for node in self.cluster.node_ids}
        return nodes | {"toxiproxy.log": self._files / "toxiproxy.log"}
