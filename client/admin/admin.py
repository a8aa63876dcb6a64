"""The admin client: a connection to a cluster, and its operations in groups. See `kraft.client.admin`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from kraft.client.admin.access import Access
from kraft.client.admin.configs import Configs
from kraft.client.admin.groups import Groups
from kraft.client.admin.nodes import Nodes
from kraft.client.admin.partitions import Partitions
from kraft.client.admin.routing import Router
from kraft.client.admin.share_groups import ShareGroups
from kraft.client.admin.topics import Topics
from kraft.client.admin.transactions import Transactions
from kraft.client.cluster import REQUEST_TIMEOUT_MS, Cluster, parse_bootstrap
from kraft.client.controllers import Controllers
from kraft.client.core.configs import ConfigError
from kraft.client.default_seam import default_seam
from kraft.client.not_open import not_open
from kraft.seam import Seam


class Admin:
    """The admin client; see `kraft.client.admin` for an example. `timeout_ms` limits the time of each call with its
    retries. If `refused_ms` is given, a call ends after that time if every address refuses the connection.

    With `bootstrap_controllers` instead of `bootstrap_servers`, requests go to the controllers directly (KIP-919). This
    works for the quorum, features and the loggers of a controller.

    Each call may raise KafkaError (rejected), ClusterUnreachable or TimedOut (no response), or VersionMismatch (the
    nodes do not support the request)."""

    topics: Topics
    partitions: Partitions
    configs: Configs
    groups: Groups
    share_groups: ShareGroups
    nodes: Nodes
    transactions: Transactions
    access: Access

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str] = (),
        bootstrap_controllers: str | Sequence[str] = (),
        client_id: str = "pykraft-admin",
        timeout_ms: float = REQUEST_TIMEOUT_MS,
        refused_ms: float | None = None,
        tls: object | None = None,
        seam: Seam | None = None,
    ) -> None:
        if bootstrap_servers and bootstrap_controllers:
            raise ConfigError("bootstrap_servers and bootstrap_controllers are given: expected one of them")
        self._addresses = parse_bootstrap(bootstrap_controllers or bootstrap_servers)
        self._cluster_class = Controllers if bootstrap_controllers else Cluster
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._refused_ms = refused_ms
        self._tls = tls
        self._given_seam = seam
        self._close_families()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            seam = await stack.enter_async_context(default_seam(self._given_seam))
            cluster = self._cluster_class(
                self._addresses,
                seam,
                client_id=self._client_id,
                tls=self._tls,
                refused_ms=self._refused_ms,
                may_create_topics=False,
            )
            stack.callback(cluster.close)
            router = Router(cluster, timeout_ms=self._timeout_ms)
            self.topics = Topics(router)
            self.partitions = Partitions(router)
            self.configs = Configs(router)
            self.groups = Groups(router)
            self.share_groups = ShareGroups(router)
            self.nodes = Nodes(router)
            self.transactions = Transactions(router)
            self.access = Access(router)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_families()
        await self._stack.__aexit__(kind, error, trace)

    def _close_families(self) -> None:
        self.topics = self.partitions = self.configs = self.groups = self.nodes = not_open("Admin")
        self.share_groups = self.transactions = self.access = not_open("Admin")
