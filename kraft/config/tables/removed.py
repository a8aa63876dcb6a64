"""Keys of older Kafka releases, each with its replacement, for a more helpful error than `unknown`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_NO_ZOOKEEPER = "there is no ZooKeeper; name the controllers in controller.quorum.voters"

REMOVED: Mapping[str, str] = MappingProxyType(
    {
        "zookeeper.connect": _NO_ZOOKEEPER,
        "zookeeper.session.timeout.ms": _NO_ZOOKEEPER,
        "zookeeper.connection.timeout.ms": _NO_ZOOKEEPER,
        "zookeeper.metadata.migration.enable": _NO_ZOOKEEPER,
        "broker.id.generation.enable": "node ids are not generated; set node.id",
        "reserved.broker.max.id": "node ids are not generated; set node.id",
        "inter.broker.protocol.version": "the feature metadata.version replaces it; see kraft features describe",
        "control.plane.listener.name": "controllers have separate listeners: controller.listener.names",
        "log.message.format.version": "all batches are stored in format 2; remove the line",
        "log.message.downconversion.enable": "fetches below version 4 are not served; remove the line",
        "log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and …after.max.ms",
        "message.format.version": "all batches are stored in format 2; remove the setting",
        "message.downconversion.enable": "fetches below version 4 are not served; remove the setting",
        "message.timestamp.difference.max.ms": "use message.timestamp.before.max.ms and …after.max.ms",
        "password.encoder.secret": "dynamic passwords are not encoded; remove the line",
        "auto.include.jmx.reporter": "there is no JMX; remove the line",
        "offsets.commit.required.acks": "offset commits always wait for the in-sync replicas; remove the line",
        "group.coordinator.new.enable": "remove the line",
    }
)
