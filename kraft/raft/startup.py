"""Choice of the role in which a replica starts, from the state on its disk.

A node that led an epoch never leads it again. Records that it sent but had not synced are lost, and (offset, epoch)
must identify one record permanently. It reports its resignation to the voters and campaigns again, in a new epoch,
after a short wait.
Source: KIP-595, Kafka's QuorumState.
"""

from __future__ import annotations

from kraft.raft.campaign import restart_candidacy, start_round
from kraft.raft.core import Core
from kraft.raft.leader import resign_to
from kraft.raft.state import NEVER, FastCampaign, Follower, Unattached
from kraft.raft.transitions import to_candidate_again


def resume(core: Core) -> None:
    if core.epoch < core.log.last_epoch:
        core.epoch = core.log.last_epoch
        core.voted = None
        core.leader_id = None
    follows = core.leader_id not in (None, core.node_id)
    if core.is_voter and not follows:
        core.fast_campaign = FastCampaign()
    if core.is_sole_voter and not (core.leader_id == core.node_id and core.alert_if_last_epoch()):
        # The sole voter does not wait for other voters, even if it led before: the epoch will be a new one.
        start_round(core)
    elif core.leader_id == core.node_id:
        _resume_resigned(core)
    elif core.leader_id is not None and core.address_of(core.leader_id) is not None:
        core.role = Follower(core.now_ms + core.settings.fetch_timeout_ms)
    elif core.leader_id is None and core.voted == core.identity.key and core.is_voter:
        to_candidate_again(core)
        restart_candidacy(core)
    else:
        core.role = Unattached(core.first_fast_round() if core.is_voter else NEVER)


def _resume_resigned(core: Core) -> None:
    settings = core.settings
    wait = settings.fast_round_max_ms + core.random.below(settings.fast_round_max_ms + 1)
    resign_to(core, core.other_voters, core.now_ms + wait if core.is_voter else core.election_timeout())
