"""Settings of share groups on clusters that are already started, ours or Apache Kafka's."""

from __future__ import annotations

from kraft.client.admin import Admin, ConfigChange, ConfigOperation, ConfigResource, ResourceType


async def begin_at_start(bootstrap: str, group: str) -> None:
    """Let a share group begin at the start of its topics."""
    change = ConfigChange(ConfigOperation.SET, "share.auto.offset.reset", "earliest")
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.configs.alter(ConfigResource(ResourceType.GROUP, group), [change])
