"""Which changes of the voter set are legal: one replica is added, removed or found at another address (KIP-853).

That no other change is under way, and that a record of the leader's epoch is committed, is checked where the record is
appended (`leader.append_voters`). A static set, which the configuration names, cannot be changed: every node has it
from its own file. Source: kraft-spec A.11.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.raft.state import Progress
from kraft.wire.error_codes import ErrorCode

OBSERVER_SILENCE_MS_MAX = 3_600_000
"""One that has not fetched for so long is not taken for caught up any more."""


class VotersRefused(NamedTuple):
    """Why the set stays as it is."""

    code: ErrorCode
    message: str


def with_voter(voters: VoterSet, added: Voter) -> VoterSet | VotersRefused:
    """The set with one more voter."""
    if voters.is_configured:
        return _STATIC
    if added.key.directory_id is None:
        return VotersRefused(ErrorCode.INVALID_REQUEST, "a new voter is named with its directory id")
    known = voters.find(added.key.node_id)
    if known is not None:
        text = f"node {added.key.node_id} is a voter already, with directory {known.key.directory}"
        return VotersRefused(ErrorCode.DUPLICATE_VOTER, text)
    return VoterSet((*voters.voters, added))


def without_voter(voters: VoterSet, key: ReplicaKey) -> VoterSet | VotersRefused:
    """The set without this voter; not without the last one."""
    if voters.is_configured:
        return _STATIC
    known = voters.find(key.node_id)
    if known is None or known.key != key:
        named = "there is none" if known is None else f"it has directory {known.key.directory}"
        text = f"there is no voter {key.node_id} with directory {key.directory}: {named}"
        return VotersRefused(ErrorCode.VOTER_NOT_FOUND, text)
    if len(voters) == 1:
        return VotersRefused(ErrorCode.VOTER_NOT_FOUND, f"node {key.node_id} is the last voter")
    return VoterSet(tuple(voter for voter in voters.voters if voter is not known))


def with_address(voters: VoterSet, updated: Voter) -> VoterSet | VotersRefused:
    """The set with this voter where it is reached now; the same set if it says so already."""
    if voters.is_configured:
        return _STATIC
    known = voters.find(updated.key.node_id)
    if known is None or known.key != updated.key:
        text = f"there is no voter {updated.key.node_id} with directory {updated.key.directory}"
        return VotersRefused(ErrorCode.VOTER_NOT_FOUND, text)
    if known == updated:
        return voters
    return VoterSet(tuple(updated if voter is known else voter for voter in voters.voters))


def refuse_newcomer(key: ReplicaKey, progress: Progress | None, now_ms: int) -> VotersRefused | None:
    """Why this observer may not become a voter yet: it must have had all of the log once, and be alive."""
    if progress is None or progress.last_caught_up_ms < 0:
        text = f"node {key.node_id} with directory {key.directory} has not caught up with the log yet"
    elif now_ms - progress.last_fetch_ms > OBSERVER_SILENCE_MS_MAX:
        text = f"node {key.node_id} has not fetched for {now_ms - progress.last_fetch_ms} ms"
    else:
        return None
    return VotersRefused(ErrorCode.REQUEST_TIMED_OUT, text)


_STATIC = VotersRefused(
    ErrorCode.UNSUPPORTED_VERSION, "the voters are those of controller.quorum.voters (kraft.version 0), which is static"
)
