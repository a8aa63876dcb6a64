"""Admin: the requests that the command sends to a cluster, each as one function with plain values in and out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import trio

from kraft.client.cluster import Cluster, ClusterUnreachable, parse_bootstrap
from kraft.client.connections import CONNECTION_FAILURES, TimedOut
from kraft.client.core.records import KafkaError
from kraft.deploy.cli.output import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed
from kraft.runtime import open_seam
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
REQUEST_TIMEOUT_MS = 5_000
SETTLE_MS_MAX = 2_000
SETTLE_PAUSE_MS = 10
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4

_NOT_THERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


@dataclass(frozen=True, slots=True)
class Admin:
    """A connection to a cluster, for one command."""

    cluster: Cluster

    async def ask(self, key: ApiKey, **fields: Any) -> Any:
        """Send to any broker; the answer in its newest form."""
        request = messages.build(messages.request_class(key), **fields)
        return await self.cluster.ask_any(key, request, timeout_ms=REQUEST_TIMEOUT_MS)

    async def ask_node(self, node_id: int, key: ApiKey, **fields: Any) -> Any:
        """Send to one broker."""
        request = messages.build(messages.request_class(key), **fields)
        link = await self.cluster.link(node_id, "admin")
        return await link.request(key, request, timeout_ms=REQUEST_TIMEOUT_MS)

    async def metadata(self, topics: Iterable[str] | None) -> Any:
        """Metadata of these topics, or of all."""
        wanted = None if topics is None else tuple({"topic_id": None, "name": name} for name in topics)
        return await self.ask(ApiKey.METADATA, topics=wanted, allow_auto_topic_creation=False)

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> tuple[int, int]:
        """Create a topic; -1 asks for the broker's default. The partitions and replicas that it got."""
        rows = tuple({"name": key, "value": value} for key, value in configs.items())
        answer = await self.ask(
            ApiKey.CREATE_TOPICS,
            topics=(
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": replication_factor,
                    "assignments": (),
                    "configs": rows,
                },
            ),
            timeout=REQUEST_TIMEOUT_MS,
        )
        require_success(answer.topics[0], f"topic {name}")
        await self._settle(name, lambda topic: topic.error_code == ErrorCode.NONE)
        return int(answer.topics[0].num_partitions), int(answer.topics[0].replication_factor)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        answer = await self.ask(
            ApiKey.DELETE_TOPICS, topics=({"name": name, "topic_id": None},), timeout=REQUEST_TIMEOUT_MS
        )
        require_success(answer.responses[0], f"topic {name}")
        await self._settle(name, lambda topic: topic.error_code in _NOT_THERE)

    async def add_partitions(self, name: str, count: int) -> None:
        """Raise a topic's number of partitions to `count`."""
        answer = await self.ask(
            ApiKey.CREATE_PARTITIONS,
            topics=({"name": name, "count": count, "assignments": None},),
            timeout=REQUEST_TIMEOUT_MS,
        )
        require_success(answer.results[0], f"topic {name}")
        await self._settle(name, lambda topic: len(topic.partitions) == count)

    async def _settle(self, name: str, is_settled: Callable[[Any], bool]) -> None:
        """Wait until every broker tells the change, so that the next command sees it whomever it asks. A broker that
        does not answer is not waited for."""
        await self.cluster.refresh([])
        topics = ({"topic_id": None, "name": name},)
        with trio.move_on_after(SETTLE_MS_MAX / 1000):
            for node_id in sorted(self.cluster.brokers):
                with suppress(*CONNECTION_FAILURES):
                    while True:
                        answer = await self.ask_node(
                            node_id, ApiKey.METADATA, topics=topics, allow_auto_topic_creation=False
                        )
                        if is_settled(answer.topics[0]):
                            break
                        await trio.sleep(SETTLE_PAUSE_MS / 1000)

    async def describe_configs(self, resource_type: int, name: str) -> Any:
        """All settings of a topic or a broker; a broker is asked itself."""
        resources = ({"resource_type": resource_type, "resource_name": name, "configuration_keys": None},)
        fields = {"resources": resources, "include_synonyms": True, "include_documentation": False}
        if resource_type == BROKER_RESOURCE and name:
            await self.cluster.refresh([])
            if int(name) not in self.cluster.brokers:
                raise CommandFailed(f"there is no broker {name}; see kraft brokers", code=EXIT_NOT_FOUND)
            answer = await self.ask_node(int(name), ApiKey.DESCRIBE_CONFIGS, **fields)
        else:
            answer = await self.ask(ApiKey.DESCRIBE_CONFIGS, **fields)
        require_success(answer.results[0], _resource(resource_type, name))
        return answer.results[0].configs

    async def alter_configs(
        self, resource_type: int, name: str, changes: Iterable[tuple[int, str, str | None]]
    ) -> None:
        """Change settings; each change is (operation, key, value) with SET 0, DELETE 1, APPEND 2, SUBTRACT 3."""
        configs = tuple({"config_operation": op, "name": key, "value": value} for op, key, value in changes)
        answer = await self.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            resources=({"resource_type": resource_type, "resource_name": name, "configs": configs},),
        )
        require_success(answer.responses[0], _resource(resource_type, name))

    async def describe_quorum(self) -> Any:
        """The answer to DescribeQuorum for the metadata partition, with the nodes' addresses."""
        answer = await self.ask(
            ApiKey.DESCRIBE_QUORUM,
            topics=({"topic_name": "__cluster_metadata", "partitions": ({"partition_index": 0},)},),
        )
        require_success(answer, "the quorum")
        require_success(answer.topics[0].partitions[0], "the quorum")
        return answer

    async def describe_cluster(self) -> Any:
        """The answer to DescribeCluster, fenced brokers included."""
        answer = await self.ask(ApiKey.DESCRIBE_CLUSTER, include_fenced_brokers=True)
        require_success(answer, "the cluster")
        return answer


@asynccontextmanager
async def open_admin(bootstrap: str) -> AsyncIterator[Admin]:
    """Connect to a cluster for as long as the context lasts."""
    async with open_seam(node_name="kraft") as seam:
        cluster = Cluster(parse_bootstrap(bootstrap), seam, client_id="kraft-cli")
        try:
            yield Admin(cluster)
        finally:
            cluster.close()


def run_admin(bootstrap: str | None, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Run `work` against the cluster at `bootstrap`, or the one started last; failures become CommandFailed."""
    address = bootstrap_servers(bootstrap)

    async def main() -> T:
        async with open_admin(address) as admin:
            return await work(admin)

    return run_async(main)


def run_async(main: Callable[[], Awaitable[T]]) -> T:
    """Run an async function; what a cluster refused or did not answer becomes CommandFailed."""
    try:
        return trio.run(main)
    except (ClusterUnreachable, TimedOut) as problem:
        raise CommandFailed(f"{problem}; is it up? see kraft status", code=EXIT_UNREACHABLE) from None
    except KafkaError as problem:
        raise CommandFailed(str(problem), code=EXIT_NOT_FOUND if problem.code in _NOT_THERE else EXIT_FAILED) from None
    except ValueError as problem:
        raise CommandFailed(str(problem), code=EXIT_USAGE) from None


def bootstrap_servers(given: str | None) -> str:
    """The brokers to ask: those given, else of the cluster started last, else Kafka's usual address."""
    from kraft.deploy.launch.errors import LaunchError
    from kraft.deploy.launch.folder import last_folder

    if given is not None:
        return given
    try:
        return last_folder().read()[0].bootstrap_servers()
    except LaunchError:
        return DEFAULT_BOOTSTRAP


def require_success(answer: Any, subject: str) -> None:
    """CommandFailed if this part of an answer carries an error."""
    code = ErrorCode(int(answer.error_code))
    if code is ErrorCode.NONE:
        return
    message = getattr(answer, "error_message", None) or code.name.lower().replace("_", " ")
    raise CommandFailed(
        f"{subject}: {message} ({code.name})", code=EXIT_NOT_FOUND if code in _NOT_THERE else EXIT_FAILED
    )


def _resource(resource_type: int, name: str) -> str:
    if resource_type == TOPIC_RESOURCE:
        return f"topic {name}"
    return f"broker {name}" if name else "all brokers"
