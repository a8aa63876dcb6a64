"""The controller listener as seen by clients, brokers and unauthorised senders."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest
import trio
from structlog.testing import capture_logs

from kraft.control import AdminRequest, AllocateProducerIds
from kraft.control.decide import COMMANDS
from kraft.control.features import SUPPORTED_FEATURES
from kraft.controller import command_queue as controller_commands
from kraft.controller import queries as controller_answers
from kraft.seam import Address, Peer, Seam
from kraft.sim.world import World
from kraft.wire import messages
from kraft.wire.api_keys import CONTROLLER_APIS, ApiKey
from kraft.wire.client import ClientConnection
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc import InternalKey, RpcMessage, decode_rpc_response, encode_rpc, refused_range
from kraft.wire.rpc.controller_messages import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    ForwardRequest,
    ForwardResponse,
    HeartbeatRequest,
    PartitionToAlter,
    RegisterBrokerRequest,
    RegisterControllerRequest,
)
from kraft.wire.rpc.quorum_messages import VoteRequest
from tests.stages.admin_requests import elections, feature_update
from tests.stages.controllers import CLUSTER_ID, PORT, Cluster
from tests.stages.tables import replace_row, shown_as

Scenario = Callable[[Cluster, Seam], Awaitable[None]]


def play(scenario: Scenario, *, controllers: int = 3, brokers: int = 1, **extra: str) -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world, controllers, brokers, **extra)
        cluster.start()
        await cluster.ready()
        await cluster.wait(lambda: set(cluster.image.controllers) == set(cluster.controllers))
        await scenario(cluster, world.node("client"))

    World(5).run(main)


class Client:
    """One connection to one controller."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    @classmethod
    async def to(cls, seam: Seam, number: int) -> Client:
        peer = Peer(number, "CONTROLLER", Address(f"c{number}", PORT))
        make = partial(ClientConnection, client_id="t")
        return cls(await seam.network.dial(peer, make, timeout_ms=1_000))

    async def send(self, key: int, version: int, body: bytes) -> bytes | None:
        answers: list[bytes | None] = []
        over = trio.Event()

        def on_reply(view: memoryview | None) -> None:
            answers.append(None if view is None else bytes(view))
            over.set()

        self.connection.send(key, version, [body], on_reply)
        await over.wait()
        return answers[0]

    def send_and_forget(self, message: RpcMessage) -> None:
        self.connection.send(message.api_key, 0, [encode_rpc(message)], lambda _: None)

    async def ask(self, key: int, version: int, **fields: Any) -> Any:
        request = messages.build(messages.request_class(key), **fields)
        body = await self.send(key, version, messages.encode_request(key, version, request))
        assert body is not None, "the connection was closed"
        return messages.decode_response(key, version, body)

    async def tell(self, message: RpcMessage) -> Any:
        body = await self.send(message.api_key, 0, encode_rpc(message))
        assert body is not None, "the connection was closed"
        return decode_rpc_response(message.api_key, 0, body)


def active_and_standby(cluster: Cluster) -> tuple[int, int]:
    assert cluster.active is not None
    number = cluster.active.config.node_id
    return number, next(one for one in cluster.controllers if one != number)


def quorum_topic(name: str = "__cluster_metadata", partition: int = 0) -> Any:
    topic = messages.nested_class(messages.request_class(ApiKey.DESCRIBE_QUORUM), "topics")
    index = messages.nested_class(topic, "partitions")
    return messages.build(topic, topic_name=name, partitions=[messages.build(index, partition_index=partition)])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_describe_quorum_lists_leader_voters_and_observers(version: int) -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        number, _ = active_and_standby(cluster)
        client = await Client.to(seam, number)
        response = await client.ask(ApiKey.DESCRIBE_QUORUM, version, topics=[quorum_topic()])
        partition = response.topics[0].partitions[0]
        assert (response.error_code, partition.error_code, partition.leader_id) == (0, 0, number)
        assert partition.leader_epoch >= 1
        assert partition.high_watermark > 0
        assert {voter.replica_id for voter in partition.current_voters} == set(cluster.controllers)
        if version == 2:
            assert {node.node_id for node in response.nodes} == set(cluster.controllers)

    play(scenario)


def test_describe_quorum_on_a_standby_is_rejected() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        client = await Client.to(seam, active_and_standby(cluster)[1])
        response = await client.ask(ApiKey.DESCRIBE_QUORUM, 2, topics=[quorum_topic()])
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        response = await client.ask(ApiKey.DESCRIBE_QUORUM, 2, topics=[quorum_topic("orders", 3)])
        refused = response.topics[0].partitions[0]
        assert (refused.partition_index, refused.error_code) == (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    play(scenario)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_served_keys_and_no_internal_ones(version: int) -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        client = await Client.to(seam, 101)
        response = await client.ask(ApiKey.API_VERSIONS, version, client_software_name="t", client_software_version="1")
        keys = {one.api_key for one in response.api_keys}
        assert {ApiKey.API_VERSIONS, ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES, ApiKey.DESCRIBE_CLUSTER} <= keys
        assert max(keys) < InternalKey.VOTE
        assert [one.api_key for one in response.api_keys] == sorted(keys)
        if version >= 3:
            assert {one.name for one in response.finalized_features} >= {"metadata.version"}
            known = {feature.name for feature in SUPPORTED_FEATURES if feature.min_level > 0 or version >= 4}
            assert {one.name for one in response.supported_features} == known

    with shown_as(CONTROLLER_APIS, dict(reversed(CONTROLLER_APIS.items()))):
        play(scenario, controllers=1)


def test_api_versions_request_in_an_unknown_version_gets_the_supported_range_in_version_0() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        client = await Client.to(seam, 101)
        over = trio.Event()
        found: list[bytes] = []

        def on_reply(view: memoryview | None) -> None:
            found.append(b"" if view is None else bytes(view))
            over.set()

        client.connection.send(ApiKey.API_VERSIONS, 99, [b"\x00"], on_reply)
        await over.wait()
        assert struct.unpack(">hihhh", found[0][:12]) == (ErrorCode.UNSUPPORTED_VERSION, 1, ApiKey.API_VERSIONS, 0, 4)

    play(scenario, controllers=1)


def test_describe_cluster_for_controller_endpoints_lists_the_controllers() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        client = await Client.to(seam, 102)
        response = await client.ask(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=2)
        assert response.cluster_id == CLUSTER_ID
        assert {one.broker_id for one in response.brokers} == set(cluster.controllers)
        assert response.controller_id == active_and_standby(cluster)[0]
        for endpoint_type, code in ((1, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
            refused = await client.ask(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=endpoint_type)
            assert refused.error_code == code

    play(scenario)


def test_describe_cluster_on_a_controller_needs_alter_permission_on_the_cluster() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        number, _ = active_and_standby(cluster)
        active = cluster.active
        assert active is not None
        client = await Client.to(seam, number)
        for operation, code in (("DESCRIBE", ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ("ALTER", ErrorCode.NONE)):
            active.authorize = Only(operation)
            response = await client.ask(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=2)
            assert (response.error_code, len(response.brokers) > 0) == (code, code is ErrorCode.NONE)

    play(scenario)


LOGGERS, TOPIC = 8, 2


def logger_changes(name: str, *changes: tuple[str, int, str | None], type_: int = LOGGERS) -> Any:
    resource = messages.nested_class(messages.request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS), "resources")
    config = messages.nested_class(resource, "configs")
    configs = [messages.build(config, name=n, config_operation=operation, value=v) for n, operation, v in changes]
    return messages.build(resource, resource_type=type_, resource_name=name, configs=configs)


def logger_names(name: str, type_: int = LOGGERS) -> Any:
    resource = messages.nested_class(messages.request_class(ApiKey.DESCRIBE_CONFIGS), "resources")
    return messages.build(resource, resource_type=type_, resource_name=name, configuration_keys=["kraft.quorum"])


def test_any_controller_alters_and_describes_its_own_logger_levels() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        for number in active_and_standby(cluster):
            client = await Client.to(seam, number)
            for change, level in (("kraft.quorum", 0, "ERROR"), "ERROR"), (("kraft.quorum", 1, None), "WARN"):
                wanted = [logger_changes(str(number), ("root", 0, "WARN"), change), logger_changes("7", change)]
                done = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=wanted)
                assert [one.error_code for one in done.responses] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
                told = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[logger_names(str(number))])
                assert [(one.name, one.value) for one in told.results[0].configs] == [("kraft.quorum", level)]

    play(scenario)


def test_controller_rejects_a_broker_logger_resource_named_twice() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        number, _ = active_and_standby(cluster)
        client = await Client.to(seam, number)
        told = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[logger_names(str(number))] * 2)
        assert [(one.error_code, one.configs) for one in told.results] == [(ErrorCode.INVALID_REQUEST, ())] * 2
        changes = [logger_changes(str(number), ("kraft.quorum", 0, level)) for level in ("ERROR", "INFO")]
        done = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=changes)
        assert [one.error_code for one in done.responses] == [ErrorCode.INVALID_REQUEST] * 2

    play(scenario)


def test_controller_serves_only_logger_configs_and_checks_authorization() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        number, _ = active_and_standby(cluster)
        assert cluster.active is not None
        client = await Client.to(seam, number)
        topic = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[logger_names("t", TOPIC)])
        assert topic.results[0].error_code == ErrorCode.INVALID_REQUEST
        cluster.active.authorize = Only("DESCRIBE")
        for key, version, resource in (
            (ApiKey.DESCRIBE_CONFIGS, 4, logger_names(str(number))),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, logger_changes(str(number), ("kraft.quorum", 0, "INFO"))),
        ):
            answer = await client.ask(key, version, resources=[resource])
            (result,) = answer.results if key is ApiKey.DESCRIBE_CONFIGS else answer.responses
            assert result.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    play(scenario)


def test_features_are_updated_only_by_the_active_controller() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        active, standby = active_and_standby(cluster)
        updates = {"feature_updates": [feature_update("metadata.version", 26, 2)]}
        refused = await (await Client.to(seam, standby)).ask(ApiKey.UPDATE_FEATURES, 2, **updates)
        assert refused.error_code == ErrorCode.NOT_CONTROLLER
        done = await (await Client.to(seam, active)).ask(ApiKey.UPDATE_FEATURES, 2, **updates)
        assert done.error_code == ErrorCode.NONE
        assert cluster.image.metadata_version == 26

    play(scenario)


def test_controller_unregisters_a_dead_broker() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        cluster.kill_broker(2)
        await cluster.wait(lambda: 2 not in cluster.unfenced())
        client = await Client.to(seam, active_and_standby(cluster)[0])
        assert (await client.ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=2)).error_code == ErrorCode.NONE
        assert cluster.image.broker_ids() == [1]
        assert (await client.ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=2)).error_code != ErrorCode.NONE

    play(scenario, brokers=2)


@pytest.mark.parametrize(
    ("listener", "protocol", "extra", "expected"),
    [
        ("PLAINTEXT", "QUIC", {}, "QUIC"),
        ("BROKERS", "SSL", {"ssl_truststore_location": "/no/pem.jks"}, "ssl.truststore.type"),
    ],
)
def test_broker_with_a_listener_that_the_controller_cannot_probe_is_not_registered(
    listener: str, protocol: str, extra: dict[str, str], expected: str
) -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        client = await Client.to(seam, active_and_standby(cluster)[0])
        refused = await client.tell(registration(listener, protocol))
        client.connection.close("the broker dies")
        await cluster.world.sleep_ms(20_000)
        assert refused.error_code == ErrorCode.INVALID_REGISTRATION
        assert expected in refused.error_message
        assert cluster.image.broker_ids() == [1]

    play(scenario, **extra)


def test_broker_with_tls_on_a_listener_name_that_is_plaintext_on_the_controller_registers() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        client = await Client.to(seam, active_and_standby(cluster)[0])
        answer = await client.tell(registration("CONTROLLER", "SSL"))
        assert answer.error_code == ErrorCode.NONE
        await cluster.world.sleep_ms(1_000)
        assert cluster.image.broker_ids() == [1, 9]
        again = await client.tell(registration("CONTROLLER", "SSL", incarnation=10))
        assert again.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION, "a silent address proves nothing"

    play(scenario)


def test_broker_that_dies_before_its_registration_commits_counts_as_not_connected() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        active = cluster.active
        assert active is not None
        client = await Client.to(seam, active.config.node_id)
        client.send_and_forget(registration("PLAINTEXT", "PLAINTEXT"))
        await cluster.wait(lambda: 9 in active.image.brokers)
        client.connection.close("the broker dies")
        await cluster.wait(lambda: 9 in cluster.image.brokers)
        assert not active.sessions.view[9].is_connected
        assert 9 not in {broker_id for broker_id, _ in active.probing._connections.values()}, "they are forgotten"

    play(scenario)


def test_broker_that_dies_while_the_previous_incarnation_is_probed_replaces_nothing() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        active = cluster.active
        assert active is not None
        epoch = cluster.image.brokers[1].broker_epoch
        cluster.world.pause("b1")
        client = await Client.to(seam, active.config.node_id)
        client.send_and_forget(replace(registration("PLAINTEXT", "PLAINTEXT"), broker_id=1))
        await cluster.wait(lambda: active.registrations_probed)
        client.connection.close("the second process dies")
        await cluster.world.sleep_ms(20)
        cluster.kill_broker(1)
        await cluster.wait(lambda: not active.registrations_probed)
        await cluster.world.sleep_ms(20)
        assert active.image.brokers[1].broker_epoch == epoch

    play(scenario)


def registration(listener: str, protocol: str, incarnation: int = 9) -> RegisterBrokerRequest:
    return RegisterBrokerRequest(
        cluster_id=CLUSTER_ID,
        broker_id=9,
        incarnation_id=UUID(int=incarnation),
        endpoints=((listener, "b9", 9092, protocol),),
        log_dirs=(UUID(int=9 << 64),),
        features=tuple(tuple(feature) for feature in SUPPORTED_FEATURES),  # type: ignore[misc]
    )


def broker_messages() -> list[RpcMessage]:
    isr = ((1, -1),)
    topic = PartitionToAlter(topic_id=UUID(int=5), partition_id=0, leader_epoch=0, partition_epoch=0, new_isr=isr)
    return [
        RegisterBrokerRequest(
            cluster_id=CLUSTER_ID,
            broker_id=9,
            incarnation_id=UUID(int=9),
            endpoints=(("PLAINTEXT", "b9", 1, "PLAINTEXT"),),
            log_dirs=(UUID(int=1 << 70),),
            features=tuple(tuple(one) for one in SUPPORTED_FEATURES),  # type: ignore[misc]
        ),
        HeartbeatRequest(broker_id=1, broker_epoch=-5, metadata_offset=0),
        AlterPartitionRequest(broker_id=1, broker_epoch=-5, partitions=(topic,)),
        AllocateProducerIdsRequest(broker_id=1, broker_epoch=-5),
        RegisterControllerRequest(
            cluster_id="another", controller_id=104, incarnation_id=UUID(int=1), endpoints=(("C", "c", 1, "PLAINTEXT"),)
        ),
        forwarded(ApiKey.ELECT_LEADERS, election_type=0, topic_partitions=[elections("gone", 0)]),
    ]


def forwarded(key: int, **fields: Any) -> ForwardRequest:
    newest = messages.newest_version(key)
    body = messages.encode_request(key, newest, messages.build(messages.request_class(key), **fields))
    return ForwardRequest(forwarded_key=key, forwarded_version=newest, body=body)


@pytest.mark.parametrize("number", range(6))
def test_standby_answers_not_controller_and_names_the_active_controller(number: int) -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        active, standby = active_and_standby(cluster)
        answer = await (await Client.to(seam, standby)).tell(broker_messages()[number])
        assert (answer.error_code, answer.leader_id) == (ErrorCode.NOT_CONTROLLER, active)

    play(scenario)


def test_active_controller_answers_each_kind_of_broker_request_with_the_matching_error_code() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        client = await Client.to(seam, active_and_standby(cluster)[0])
        codes = [(await client.tell(message)).error_code for message in broker_messages()]
        stale = ErrorCode.STALE_BROKER_EPOCH
        assert codes == [0, stale, stale, stale, ErrorCode.INCONSISTENT_CLUSTER_ID, 0]

    play(scenario)


def test_controller_alters_an_isr_and_allocates_producer_ids() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        client = await Client.to(seam, active_and_standby(cluster)[0])
        epoch = cluster.image.brokers[1].broker_epoch
        first = await client.tell(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
        second = await client.tell(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
        assert second.first_producer_id == first.first_producer_id + first.count
        message = broker_messages()[2]
        assert isinstance(message, AlterPartitionRequest)
        answer = await client.tell(
            AlterPartitionRequest(broker_id=1, broker_epoch=epoch, partitions=message.partitions)
        )
        assert answer.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    play(scenario)


def test_controller_answers_a_describe_quorum_request_that_a_broker_forwards() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        client = await Client.to(seam, active_and_standby(cluster)[0])
        answer = await client.tell(forwarded(ApiKey.DESCRIBE_QUORUM, topics=[quorum_topic()]))
        response = messages.decode_response(ApiKey.DESCRIBE_QUORUM, 2, answer.body)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE

    play(scenario)


@pytest.mark.parametrize(
    ("key", "body"),
    [
        (InternalKey.HEARTBEAT, b"garbage"),
        (InternalKey.HEARTBEAT, b""),
        (InternalKey.FORWARD, encode_rpc(ForwardRequest(forwarded_key=3, forwarded_version=13, body=b""))),
        (InternalKey.FORWARD, encode_rpc(ForwardRequest(forwarded_key=19, forwarded_version=2, body=b""))),
        (InternalKey.FORWARD, encode_rpc(ForwardRequest(forwarded_key=19, forwarded_version=7, body=b"\xff" * 9))),
        (InternalKey.IDENTIFY, b"\x90"),
        (ApiKey.PRODUCE, b""),
        (ApiKey.DESCRIBE_QUORUM, b"\xff\xff\xff"),
    ],
)
def test_invalid_bytes_close_only_their_own_connection(key: int, body: bytes) -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        number, _ = active_and_standby(cluster)
        other = await Client.to(seam, number)
        stranger = await Client.to(seam, number)
        version = 9 if key == ApiKey.PRODUCE else 0
        assert await stranger.send(key, version, body) is None
        response = await other.ask(ApiKey.DESCRIBE_QUORUM, 2, topics=[quorum_topic()])
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE

    play(scenario)


def test_forwarded_request_is_answered_in_its_version_or_gets_the_newest_supported_version() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        number, _ = active_and_standby(cluster)
        client = await Client.to(seam, number)
        key, newest = ApiKey.DESCRIBE_QUORUM, messages.newest_version(ApiKey.DESCRIBE_QUORUM)
        message = messages.build(messages.request_class(key), topics=[])
        for version in range(newest + 1):
            body = messages.encode_request(key, version, message)
            answer = await client.tell(ForwardRequest(forwarded_key=key, forwarded_version=version, body=body))
            assert messages.decode_response(key, version, answer.body).error_code == ErrorCode.NONE
        body = messages.encode_request(key, newest, message)
        answer = await client.tell(ForwardRequest(forwarded_key=key, forwarded_version=newest + 1, body=body))
        assert (answer.error_code, answer.newest_version) == (ErrorCode.UNSUPPORTED_VERSION, newest)

    play(scenario)


def test_unsupported_internal_version_is_rejected_and_the_connection_stays_open() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        client = await Client.to(seam, 101)
        for message in broker_messages():
            body = await client.send(message.api_key, 99, b"who knows")
            assert body is not None
            assert refused_range(body) == (message.min_version, message.max_version)
        await client.tell(broker_messages()[0])

    play(scenario)


class Only:
    """An authorizer that allows only these operations."""

    def __init__(self, *operations: str) -> None:
        self.operations = operations

    def __call__(self, requester: Any, operation: str, resource_type: str, name: str) -> bool:
        assert (resource_type, name) == ("CLUSTER", "kafka-cluster")
        return operation in self.operations


def test_internal_requests_need_cluster_action_permission() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        number, _ = active_and_standby(cluster)
        active = cluster.active
        assert active is not None
        active.authorize = Only("DESCRIBE")
        for message in (broker_messages()[1], VoteRequest(candidate_id=1)):
            stranger = await Client.to(seam, number)
            assert await stranger.send(message.api_key, 0, encode_rpc(message)) is None
        active.authorize = Only("CLUSTER_ACTION")
        await (await Client.to(seam, number)).tell(broker_messages()[1])

    play(scenario)


def test_describe_quorum_needs_describe_permission_on_the_cluster() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        number, _ = active_and_standby(cluster)
        active = cluster.active
        assert active is not None
        active.authorize = Only("CLUSTER_ACTION")
        client = await Client.to(seam, number)
        response = await client.ask(ApiKey.DESCRIBE_QUORUM, 2, topics=[quorum_topic()])
        assert (response.error_code, list(response.topics)) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])

    play(scenario)


def test_every_advertised_api_key_is_answered() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        number, _ = active_and_standby(cluster)
        client = await Client.to(seam, number)
        fields: dict[int, dict[str, Any]] = {
            ApiKey.DESCRIBE_QUORUM: {"topics": [quorum_topic()]},
            ApiKey.DESCRIBE_CLUSTER: {"endpoint_type": 2},
            ApiKey.DESCRIBE_CONFIGS: {"resources": [logger_names(str(number))]},
            ApiKey.INCREMENTAL_ALTER_CONFIGS: {"resources": [logger_changes(str(number))]},
            ApiKey.UPDATE_FEATURES: {"feature_updates": []},
            ApiKey.UNREGISTER_BROKER: {"broker_id": 77},
            ApiKey.ADD_RAFT_VOTER: {"cluster_id": None, "voter_id": 77},
            ApiKey.REMOVE_RAFT_VOTER: {"cluster_id": None, "voter_id": 77},
            ApiKey.UPDATE_RAFT_VOTER: {"cluster_id": None, "voter_id": 77},
        }
        told = await client.ask(ApiKey.API_VERSIONS, 4, client_software_name="t", client_software_version="1")
        assert {api.api_key for api in told.api_keys} == {ApiKey.API_VERSIONS, *fields}
        for api in told.api_keys:
            for version in range(api.min_version, api.max_version + 1):
                if api.api_key == ApiKey.DESCRIBE_CLUSTER and version == 0:
                    continue  # an old version that cannot ask for controllers
                if api.api_key != ApiKey.API_VERSIONS:
                    await client.ask(api.api_key, version, **fields[api.api_key])

    play(scenario)


def test_static_voters_cannot_be_changed_and_standbys_answer_not_controller() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        number, standby = active_and_standby(cluster)
        listener = {"name": "CONTROLLER", "host": "c77", "port": 9192}
        asked = {"cluster_id": None, "voter_id": 77, "voter_directory_id": UUID(int=1 << 100)}
        for key, fields in (
            (ApiKey.ADD_RAFT_VOTER, {**asked, "listeners": (listener,), "timeout": 1_000}),
            (ApiKey.REMOVE_RAFT_VOTER, asked),
        ):
            answer = await (await Client.to(seam, number)).ask(key, 0, **fields)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert "controller.quorum.voters" in answer.error_message
            answer = await (await Client.to(seam, standby)).ask(key, 0, **fields)
            assert answer.error_code == ErrorCode.NOT_CONTROLLER
            other = {**fields, "cluster_id": "another"}
            answer = await (await Client.to(seam, number)).ask(key, 0, **other)
            assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID

    play(scenario)


def test_update_raft_voter_checks_the_leader_epoch() -> None:
    async def scenario(cluster: Cluster, seam: Seam) -> None:
        number, _ = active_and_standby(cluster)
        listener = {"name": "CONTROLLER", "host": "c77", "port": 9192}
        feature = {"min_supported_version": 0, "max_supported_version": 1}
        asked = {
            "cluster_id": None,
            "voter_id": 77,
            "voter_directory_id": UUID(int=1 << 100),
            "listeners": (listener,),
            "k_raft_version_feature": feature,
        }
        client = await Client.to(seam, number)
        old = await client.ask(ApiKey.UPDATE_RAFT_VOTER, 0, **asked, current_leader_epoch=0)
        assert old.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (old.current_leader.leader_id, old.current_leader.leader_epoch) == (number, 1)
        new = await client.ask(ApiKey.UPDATE_RAFT_VOTER, 0, **asked, current_leader_epoch=9)
        assert new.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        far = {**asked, "listeners": ({**listener, "host": "x" * 5_000},)}
        unsayable = await client.ask(ApiKey.UPDATE_RAFT_VOTER, 0, **far, current_leader_epoch=1)
        assert unsayable.error_code == ErrorCode.INVALID_REQUEST
        static = await client.ask(ApiKey.UPDATE_RAFT_VOTER, 0, **asked, current_leader_epoch=1)
        assert static.error_code == ErrorCode.UNSUPPORTED_VERSION

    play(scenario)


def direct_and_forwarded(updates: dict[str, Any]) -> tuple[RpcMessage, ForwardRequest]:
    """Return a request that a broker sends for itself, and the same request of a client that a broker forwards."""
    key = ApiKey.UPDATE_FEATURES
    request = messages.build(messages.request_class(key), **updates)
    body = messages.encode_request(key, 2, request)
    return (
        AllocateProducerIdsRequest(broker_id=1, broker_epoch=999),
        ForwardRequest(forwarded_key=key, forwarded_version=2, body=body),
    )


def test_request_that_raises_is_answered_and_the_connection_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raising(*_: Any) -> Any:
        raise KeyError("planted")

    async def scenario(cluster: Cluster, seam: Seam) -> None:
        client = await Client.to(seam, active_and_standby(cluster)[0])
        updates = {"feature_updates": [feature_update("metadata.version", 26, 2)]}
        with monkeypatch.context() as patch:
            for command in (AdminRequest, AllocateProducerIds):
                replace_row(patch, COMMANDS, command, raising)
            for message in direct_and_forwarded(updates):
                assert (await client.tell(message)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            answer = await client.ask(ApiKey.UPDATE_FEATURES, 2, **updates)
            assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await client.tell(direct_and_forwarded(updates)[0])).error_code == ErrorCode.STALE_BROKER_EPOCH

    play(scenario)


def test_response_that_cannot_be_encoded_gives_one_error_and_one_log_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unencodable(_controller: Any, cls: Any) -> list[Any]:
        return [messages.build(messages.nested_class(cls, "nodes"), node_id=2**40, listeners=())]

    monkeypatch.setattr(controller_answers, "_nodes", unencodable)
    request = messages.build(messages.request_class(ApiKey.DESCRIBE_QUORUM), topics=[quorum_topic()])
    body = messages.encode_request(ApiKey.DESCRIBE_QUORUM, 2, request)
    forward = ForwardRequest(forwarded_key=ApiKey.DESCRIBE_QUORUM, forwarded_version=2, body=body)

    async def scenario(cluster: Cluster, seam: Seam) -> None:
        client = await Client.to(seam, active_and_standby(cluster)[0])
        with capture_logs() as lines:
            answer = await client.ask(ApiKey.DESCRIBE_QUORUM, 2, topics=[quorum_topic()])
            assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert (await client.tell(forward)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        failed = [line for line in lines if line["event"] == "request failed"]
        assert len(failed) == 2
        for line in failed:
            assert "CannotEncode" in line["error"]
            assert "DESCRIBE_QUORUM response version 2: " in line["error"]
            assert not line["exc_info"]

    play(scenario)


def test_response_too_large_to_forward_gives_one_error_and_the_controller_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error texts for many topics with invalid names take far more bytes than the names."""
    monkeypatch.setattr(ForwardResponse, "bytes_max", 10_000)
    topic = messages.nested_class(messages.request_class(ApiKey.CREATE_TOPICS), "topics")

    def creating(count: int) -> ForwardRequest:
        topics = [messages.build(topic, name=f"!{n}", num_partitions=1, replication_factor=1) for n in range(count)]
        request = messages.build(messages.request_class(ApiKey.CREATE_TOPICS), topics=topics, timeout=1_000)
        body = messages.encode_request(ApiKey.CREATE_TOPICS, 7, request)
        return ForwardRequest(forwarded_key=ApiKey.CREATE_TOPICS, forwarded_version=7, body=body)

    async def scenario(cluster: Cluster, seam: Seam) -> None:
        client = await Client.to(seam, active_and_standby(cluster)[0])
        with capture_logs() as lines:
            assert (await client.tell(creating(500))).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        (failed,) = [line for line in lines if line["event"] == "command failed"]
        assert "is over its bound of 10000" in failed["error"]
        assert (await client.tell(creating(5))).error_code == ErrorCode.NONE

    play(scenario)


def test_controller_with_a_full_command_queue_answers_request_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_commands, "WAITING_MAX", 0)

    async def scenario(cluster: Cluster, seam: Seam) -> None:
        active = cluster.active
        assert active is not None
        client = await Client.to(seam, active.config.node_id)
        updates = {"feature_updates": [feature_update("metadata.version", 26, 2)]}
        monkeypatch.setattr(controller_commands.CommandQueue, "is_held", True)
        for message in direct_and_forwarded(updates):
            assert (await client.tell(message)).error_code == ErrorCode.REQUEST_TIMED_OUT
        answer = await client.ask(ApiKey.UPDATE_FEATURES, 2, **updates)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "busy" in answer.error_message

    play(scenario)
