"""AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter as requests: decoded from and encoded to the newest class of their
key.

They come from clients through a broker, from Kafka's tools to the controller listener itself, and from controllers that
join or have moved. Only the active controller carries them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kraft.control import Requester
from kraft.quorum.node_settings import controller_listener
from kraft.quorum.voter_changes import NOT_LEADER, AddVoter, RemoveVoter, UpdateVoter, VoterChange
from kraft.raft.identity import ReplicaKey, Voter
from kraft.raft.voter_changes import VotersRefused
from kraft.seam import Address
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import HOST_CHARACTERS_MAX

if TYPE_CHECKING:
    from kraft.controller.controller import Controller

REMOVE_TIMEOUT_MS = 15_000
OUR_KRAFT_VERSION = 1

Read = Callable[["Controller", Any], VoterChange | VotersRefused]


def submit_voter_change(
    controller: Controller, api_key: int, requester: Requester, message: Any, reply: Callable[[Any], None]
) -> None:
    """Carry out the request; `reply` gets the response when the change is committed or refused."""
    operation, read = VOTER_REQUESTS[api_key]

    def answer(outcome: VotersRefused) -> None:
        reply(_response(controller, api_key, outcome))

    if not controller.queue.is_active:
        answer(NOT_LEADER)
        return
    if not controller.authorize(requester, operation, "CLUSTER", "kafka-cluster"):
        answer(_refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return
    if message.cluster_id not in (None, controller.cluster_id):
        text = f"this is cluster {controller.cluster_id}, not {message.cluster_id}"
        answer(_refused(ErrorCode.INCONSISTENT_CLUSTER_ID, text))
        return
    asked = read(controller, message)
    if isinstance(asked, VotersRefused):
        answer(asked)
    else:
        controller.start_voter_change(asked, answer)


def _response(controller: Controller, api_key: int, outcome: VotersRefused) -> Any:
    """Return the response to a voter request, in the newest version of its API key."""
    cls = messages.response_class(api_key)
    if api_key != ApiKey.UPDATE_RAFT_VOTER:
        return messages.build(cls, error_code=outcome.code, error_message=outcome.message or None)
    leader_id, epoch = controller.quorum.leader_and_epoch
    address = next((one[1:] for one in controller.quorum.describe().endpoints if one[0] == leader_id), ("", -1))
    leader = messages.build(
        messages.nested_class(cls, "current_leader"),
        leader_id=-1 if leader_id is None else leader_id,
        leader_epoch=epoch,
        host=address[0],
        port=address[1],
    )
    return messages.build(cls, error_code=outcome.code, current_leader=leader)


def _refused(code: ErrorCode, text: str = "") -> VotersRefused:
    return VotersRefused(code, text)


def _read_add(controller: Controller, message: Any) -> VoterChange | VotersRefused:
    voter = _voter(controller, message)
    return voter if isinstance(voter, VotersRefused) else AddVoter(voter, messages.milliseconds(message.timeout))


def _read_remove(_controller: Controller, message: Any) -> VoterChange | VotersRefused:
    return RemoveVoter(ReplicaKey(message.voter_id, message.voter_directory_id), REMOVE_TIMEOUT_MS)


def _read_update(controller: Controller, message: Any) -> VoterChange | VotersRefused:
    known = message.k_raft_version_feature
    if not known.min_supported_version <= OUR_KRAFT_VERSION <= known.max_supported_version:
        return _refused(ErrorCode.INVALID_REQUEST)
    voter = _voter(controller, message)
    return voter if isinstance(voter, VotersRefused) else UpdateVoter(voter, message.current_leader_epoch)


def _voter(controller: Controller, message: Any) -> Voter | VotersRefused:
    """Return the voter that a request names, at its address on the controllers' listener."""
    name = controller_listener(controller.config)
    for listener in message.listeners:
        if listener.name == name and 0 < len(listener.host) <= HOST_CHARACTERS_MAX and listener.port > 0:
            address = Address(str(listener.host), int(listener.port))
            return Voter(ReplicaKey(message.voter_id, message.voter_directory_id), address)
    named = ", ".join(listener.name for listener in message.listeners) or "none"
    text = f"the voter needs an address on listener {name}, of a host with at most {HOST_CHARACTERS_MAX} characters"
    text = f"{text} (given: {named})"
    return _refused(ErrorCode.INVALID_REQUEST, text)


VOTER_REQUESTS: Mapping[int, tuple[str, Read]] = MappingProxyType(
    {
        ApiKey.ADD_RAFT_VOTER: ("ALTER", _read_add),
        ApiKey.REMOVE_RAFT_VOTER: ("ALTER", _read_remove),
        ApiKey.UPDATE_RAFT_VOTER: ("CLUSTER_ACTION", _read_update),
    }
)
"""API key → (the ACL operation that a request needs, the parser of the request)."""
