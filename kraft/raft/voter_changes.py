"""Legal changes of the voter set: one replica is added, removed or moved to another address (KIP-853).

`leader.append_voters`, which appends the record, checks that no other change is in progress and that a record of the
leader's epoch is committed. A static set cannot be changed: every node reads it from its own configuration. Refusals
begin with the words that Kafka's tools print.
Source: KIP-853, Raft dissertation, section 4.1.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.raft.state import Progress
from kraft.seam.ids import encode_uuid
from kraft.wire.error_codes import ErrorCode

OBSERVER_SILENCE_MS_MAX = 3_600_000
"""Milliseconds without a fetch after which an observer no longer counts as caught up."""


class VotersRefused(NamedTuple):
    """Error code and text that explain why the voter set is not changed."""

    code: ErrorCode
    message: str


def with_voter(voters: VoterSet, added: Voter) -> VoterSet | VotersRefused:
    """Return the set with this voter added, or why it may not be added."""
    if voters.is_configured:
        return _static("adding")
    if added.key.directory_id is None:
        return VotersRefused(
            ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter: name its directory id"
        )
    known = voters.find(added.key.node_id)
    if known is not None:
        text = f"The voter id for {_shown(added.key)} is already part of the set of voters as {_shown(known.key)}."
        return VotersRefused(ErrorCode.DUPLICATE_VOTER, text)
    return VoterSet((*voters.voters, added))


def without_voter(voters: VoterSet, key: ReplicaKey) -> VoterSet | VotersRefused:
    """Return the set without this voter, or why it may not be removed. The last voter cannot be removed."""
    if voters.is_configured:
        return _static("removing")
    known = voters.find(key.node_id)
    if known is None or known.key != key:
        named = f"there is no voter {key.node_id}" if known is None else f"it is {_shown(known.key)}"
        text = f"Cannot remove voter {_shown(key)} from the set of voters: {named}"
        return VotersRefused(ErrorCode.VOTER_NOT_FOUND, text)
    if len(voters) == 1:
        return VotersRefused(
            ErrorCode.VOTER_NOT_FOUND, f"Cannot remove voter {_shown(key)} from the set of voters: it is the last one"
        )
    return VoterSet(tuple(voter for voter in voters.voters if voter is not known))


def with_address(voters: VoterSet, updated: Voter) -> VoterSet | VotersRefused:
    """Return the set with this voter at its present address, or why the address may not change. The same set is
    returned if it already names that address."""
    if voters.is_configured:
        return _static("updating")
    known = voters.find(updated.key.node_id)
    if known is None or known.key != updated.key:
        text = f"The voter {_shown(updated.key)} is not part of the set of voters."
        return VotersRefused(ErrorCode.VOTER_NOT_FOUND, text)
    if known == updated:
        return voters
    return VoterSet(tuple(updated if voter is known else voter for voter in voters.voters))


def refuse_newcomer(key: ReplicaKey, progress: Progress | None, now_ms: int) -> VotersRefused | None:
    """Return why this observer may not become a voter yet, or None. It must have caught up with the log once, and be
    alive."""
    if progress is None or progress.last_caught_up_ms < 0:
        why = "it has not caught up with the log yet"
    elif now_ms - progress.last_fetch_ms > OBSERVER_SILENCE_MS_MAX:
        why = f"it has not fetched for {now_ms - progress.last_fetch_ms} ms"
    else:
        return None
    text = f"Aborted add voter operation for {_shown(key)} since it is lagging behind: {why}"
    return VotersRefused(ErrorCode.REQUEST_TIMED_OUT, text)


def _static(verb: str) -> VotersRefused:
    text = f"Cluster doesn't support {verb} voter because the kraft.version feature is 0"
    return VotersRefused(ErrorCode.UNSUPPORTED_VERSION, f"{text}: controller.quorum.voters names the voters")


def _shown(key: ReplicaKey) -> str:
    """Return the key as Kafka prints it."""
    directory = "<undefined>" if key.directory_id is None else encode_uuid(key.directory_id)
    return f"ReplicaKey(id={key.node_id}, directoryId={directory})"
