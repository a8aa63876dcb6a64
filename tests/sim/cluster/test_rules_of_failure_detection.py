"""Tests that each rule of fast failure detection and fast elections (docs/deviations.md) has a planted bug that a test
catches.

A table names the test for each rule. A rule without another test has one here: the code is broken in one place, and a
test that passes with the correct code must fail. So this module fails if a rule loses its test.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kraft.broker.node import dispatch
from kraft.control import decision
from kraft.control.brokers import fencing, heartbeats, probing
from kraft.control.brokers import registration as brokers
from kraft.control.brokers.probing import (
    BecameActive,
    BrokerKnown,
    HeartbeatReceived,
    ProbeAnswered,
    ProbeInput,
    ProbeOutcome,
    Probing,
)
from kraft.control.commands import FenceBrokers
from kraft.control.decide import COMMANDS
from kraft.control.partitions import partition_change, plans
from kraft.image import Endpoint
from kraft.raft import ballots
from kraft.raft import leader as raft_leader
from kraft.wire.rpc import InternalKey
from tests.broker.node import test_dispatch
from tests.control import test_brokers, test_fencing, test_partition_change, test_probing
from tests.raft import test_ballots, test_fast_elections
from tests.stages.tables import replace_row

TESTS = Path(__file__).parents[2]
PROBES, FENCES = "control/test_planted_bugs_of_probing.py", "control/test_fencing.py"
RAFT, CLUSTER = "raft/test_planted_bugs.py", "sim/cluster/test_planted_bugs.py"
HERE = "sim/cluster/test_rules_of_failure_detection.py"

CLAUSES: dict[str, tuple[tuple[str, str], ...]] = {
    # brokers
    "two bad results are needed": (
        (PROBES, "judge_at_once"),
        (CLUSTER, "test_checks_catch_fencing_after_a_single_failed_probe"),
    ),
    "they are 50 ms apart": ((PROBES, "judge_at_once"),),
    "with no heartbeat in between": ((PROBES, "heartbeat_ignored"),),
    "only if the address has answered SAME before": ((PROBES, "judge_without_same"),),
    "for this broker epoch": ((PROBES, "same_of_any_life"),),
    "OTHER fences only who is suspected": ((HERE, "other_about_anybody"),),
    "silence leaves the session time-out in charge": ((PROBES, "judge_silence"),),
    "the end of a connection starts a probe": (
        (CLUSTER, "test_checks_catch_a_controller_that_fences_only_after_the_session_timeout"),
    ),
    "the end of an old connection does not": ((PROBES, "old_connections_make_suspects"),),
    "a connection that we closed does not": ((PROBES, "any_end_counts"),),
    "the fence names epoch and connection": ((PROBES, "fence_without_names"),),
    "it is void if the connection is not current": (
        (FENCES, "test_checks_catch_a_fence_without_the_connection_number"),
    ),
    "it is void if the broker epoch is not current": ((FENCES, "test_checks_catch_a_fence_without_the_broker_epoch"),),
    "losses within 20 ms are fenced in one plan": (
        (PROBES, "fence_one_by_one"),
        (FENCES, "test_checks_catch_fencing_dead_brokers_one_after_the_other"),
    ),
    "plans are cut into slices": ((HERE, "slices_without_a_limit"),),
    "each slice is built on the newest image": (
        (FENCES, "test_checks_catch_a_plan_whose_slices_are_all_decided_on_the_image_at_its_start"),
    ),
    "the fence record comes last": ((HERE, "fence_first"),),
    "from the first slice on it is not eligible, and heartbeats do not unfence it": ((HERE, "unfence_in_between"),),
    "elections prefer members whose connection is up": ((HERE, "connections_do_not_matter"),),
    "a fast fence starts no unclean election": (
        (FENCES, "test_checks_catch_a_fast_fence_that_may_be_unclean"),
        (CLUSTER, "test_checks_catch_an_unclean_election_after_a_fast_fence"),
    ),
    "a new active controller waits 100 ms for connections": ((PROBES, "no_grace"),),
    "what a standby saw is one result, and only when it is fresh": (
        (PROBES, "standby_result_counts_twice"),
        (PROBES, "standby_result_never_expires"),
    ),
    "a standby fences nobody": ((PROBES, "standby_fences"),),
    "at most 32 probes are under way": ((HERE, "probes_without_a_limit"),),
    "a registration waits for a live session of another incarnation": ((HERE, "everybody_registers"),),
    "unless that very incarnation is proven dead": ((HERE, "any_death_counts"),),
    "until it is unfenced a broker answers only ApiVersions and Identify": ((HERE, "nothing_waits"),),
    "private keys are out of sight on a client's listener": ((HERE, "clients_may_identify"),),
    # voters
    "a leader grants no pre-vote": ((HERE, "leader_grants"),),
    "a follower with contact grants none": (
        (RAFT, "test_checks_catch_pre_votes_granted_regardless_of_leader_contact"),
        (CLUSTER, "test_checks_catch_a_pre_vote_granted_despite_leader_contact"),
    ),
    "a follower without contact grants it": (
        (RAFT, "test_checks_catch_a_follower_that_grants_no_pre_vote_after_losing_contact"),
    ),
    "a pre-vote changes nothing in who answers": (
        (RAFT, "test_checks_catch_a_pre_vote_that_raises_the_epoch_of_the_voter"),
        (CLUSTER, "test_checks_catch_a_pre_vote_that_raises_the_epoch_of_the_voter"),
    ),
    "a pre-vote makes a follower redial its leader": (
        (RAFT, "test_checks_catch_a_follower_that_does_not_redial_its_leader_on_a_pre_vote_request"),
    ),
    "a lost contact is acted upon at once": ((RAFT, "test_checks_catch_elections_that_wait_for_the_fetch_timeout"),),
    "a prospective voter asks again soon": (
        (RAFT, "test_checks_catch_a_prospective_that_does_not_retry_a_lost_pre_vote_round_soon"),
    ),
    "a candidate that lost asks again soon": (
        (RAFT, "test_checks_catch_a_losing_candidate_that_waits_for_its_election_timeout"),
    ),
    "a voter that has just started asks soon": (
        (RAFT, "test_checks_catch_a_restarted_voter_that_waits_for_an_election_timeout"),
    ),
    "real votes are Kafka's": (
        (RAFT, "test_checks_catch_a_vote_forgotten_within_its_epoch"),
        (RAFT, "test_checks_catch_a_vote_that_compares_log_end_offsets_without_epochs"),
    ),
    # clean stops
    "a leader that stops says so": ((HERE, "no_goodbye"),),
    "a broker that stops hands its partitions over": ((HERE, "no_handing_over"),),
    # eligible leader replicas
    "who leaves an ISR that is too small stays eligible": ((HERE, "no_replica_stays_eligible"),),
    "the high watermark does not move under min.insync.replicas": (
        (CLUSTER, "test_checks_catch_a_high_watermark_that_advances_under_min_isr"),
    ),
    "an unclean restart leaves the ELR": (
        (CLUSTER, "test_checks_catch_a_replica_left_in_the_elr_after_an_unclean_restart"),
        (HERE, "every_stop_was_clean"),
    ),
    "the clean-shutdown file holds the broker epoch": ((HERE, "any_clean_stop_counts"),),
}


@pytest.mark.parametrize("clause", CLAUSES)
def test_the_planted_bug_or_test_named_for_each_rule_of_failure_detection_exists(clause: str) -> None:
    for file, name in CLAUSES[clause]:
        tree = ast.parse((TESTS / file).read_text())
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        values = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        assert name in functions | values, (file, name)


# the bugs: each breaks one rule

honest_answered = Probing._probe_answered
honest_fence = fencing.decide_fence
honest_slice = plans.take_slice


def other_about_anybody(self: Probing, answered: ProbeAnswered, now_ms: int) -> None:
    watch = self._watches.get(self._probes.get(answered.probe_id, -1))
    honest_answered(self, answered, now_ms)
    if watch is not None and answered.outcome is ProbeOutcome.OTHER:
        watch.proven_ms = now_ms


def slices_without_a_limit(partitions: Any, change: Any, limit: int = 0) -> Any:
    return honest_slice(partitions, change, 1_000_000)


def fence_first(*arguments: Any) -> Any:
    decided = honest_fence(*arguments)
    return replace(decided, events=tuple(reversed(decided.events)))


def unfence_in_between(context: Any, broker: Any) -> Any:
    return honest_state(replace(context, being_fenced=frozenset()), broker)


def connections_do_not_matter(self: Any, broker_id: int) -> bool:
    return True


def everybody_registers(*_: Any) -> None:
    return None


def any_death_counts(image: Any, context: Any, command: Any) -> Any:
    old = image.brokers.get(command.broker_id)
    if old is not None and command.dead_broker_epoch is not None:
        command = replace(command, dead_broker_epoch=old.broker_epoch)
    return honest_refusal(image, context, command)


def leader_grants(core: Any) -> bool:
    return True


def no_goodbye(core: Any, leader: Any) -> None:
    """Planted bug: a leader resigns without notifying the other voters."""


def no_handing_over(image: Any, context: Any, broker: Any, reply: Any) -> Any:
    return decision.Decision(reply=reply, depends_on=image.offset)


def no_replica_stays_eligible(old: Any, draft: Any, enough: int, unclean_restarted: frozenset[int]) -> None:
    draft.elr = ()


def every_stop_was_clean(old: Any, command: Any) -> bool:
    return True


def any_clean_stop_counts(old: Any, command: Any) -> bool:
    return command.previous_broker_epoch >= 0


honest_state = heartbeats.current_state
honest_refusal = brokers.refuse_registration
nothing_waits = frozenset(range(20_000))
clients_may_identify = dispatch.INTER_BROKER_TABLE
probes_without_a_limit = 1_000


# tests for rules without a test elsewhere


def other_answers_for_a_broker_that_is_connected() -> None:
    """Check that a wrong advertised address does not fence a live broker that is connected."""
    probes = Probing()

    def tell(*happened: ProbeInput) -> Any:
        return [probes.step(item, 1_000) for item in happened][-1]

    known = BrokerKnown(2, 5, UUID(int=1), Endpoint("PLAINTEXT", "node-2", 9092, 0), False)
    (probe,) = tell(BecameActive(), HeartbeatReceived(2, 5, 1), known).probes
    assert not tell(ProbeAnswered(probe.probe_id, ProbeOutcome.OTHER)).fence


def only_leaders_refuse() -> None:
    test_ballots.test_pre_vote_depends_on_the_role_and_changes_no_state(test_ballots.leader, False)


def identify_on_a_client_listener() -> None:
    test_dispatch.test_an_internal_request_on_a_client_listener_closes_the_connection(InternalKey.IDENTIFY)


PLANTED: list[tuple[Any, Any, Any, Callable[[], None]]] = [
    (Probing, "_probe_answered", other_about_anybody, other_answers_for_a_broker_that_is_connected),
    (
        plans,
        "take_slice",
        slices_without_a_limit,
        test_fencing.test_large_fence_is_decided_in_slices_with_the_fence_record_last,
    ),
    (COMMANDS, FenceBrokers, fence_first, test_fencing.test_partition_changes_of_a_fence_come_before_its_fence_record),
    (
        heartbeats,
        "current_state",
        unfence_in_between,
        test_brokers.test_broker_is_not_unfenced_while_it_is_being_fenced,
    ),
    (
        decision.Context,
        "is_connected",
        connections_do_not_matter,
        test_fencing.test_elections_prefer_isr_members_whose_connection_is_up,
    ),
    (
        probing,
        "PROBES_UNDER_WAY_MAX",
        probes_without_a_limit,
        test_probing.test_at_most_32_probes_are_in_flight_and_suspects_come_first,
    ),
    (
        brokers,
        "refuse_registration",
        everybody_registers,
        test_brokers.test_new_incarnation_is_rejected_while_the_old_session_is_live,
    ),
    (
        brokers,
        "refuse_registration",
        any_death_counts,
        test_brokers.test_proof_that_an_older_incarnation_died_does_not_let_a_new_one_replace_the_live_one,
    ),
    (
        dispatch,
        "UNHELD_KEYS",
        nothing_waits,
        test_dispatch.test_before_the_broker_is_unfenced_other_requests_wait_unread_and_are_answered_in_order,
    ),
    (dispatch, "CLIENT_TABLE", clients_may_identify, identify_on_a_client_listener),
    (ballots, "grants_pre_vote", leader_grants, only_leaders_refuse),
    (
        raft_leader,
        "resign",
        no_goodbye,
        test_fast_elections.test_leader_that_resigns_is_replaced_within_150_ms,
    ),
    (
        heartbeats,
        "_controlled_shutdown",
        no_handing_over,
        test_brokers.test_controlled_shutdown_moves_leadership_and_leaves_unreplicated_partitions_leaderless,
    ),
    (
        partition_change,
        "_keep_eligible",
        no_replica_stays_eligible,
        test_partition_change.test_replica_that_leaves_an_isr_that_becomes_too_small_enters_the_elr,
    ),
    (brokers, "is_clean", every_stop_was_clean, test_brokers.test_broker_leaves_the_elr_after_an_unclean_stop),
    (
        brokers,
        "is_clean",
        any_clean_stop_counts,
        test_brokers.test_broker_leaves_the_elr_if_only_an_incarnation_before_the_last_one_stopped_cleanly,
    ),
]


@pytest.mark.parametrize(
    ("owner", "name", "bug", "notices"), PLANTED, ids=[notices.__name__ for *_, notices in PLANTED]
)
def test_a_planted_bug_in_failure_detection_fails_its_test(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: Any, bug: Any, notices: Callable[[], None]
) -> None:
    notices()
    if isinstance(owner, Mapping):
        replace_row(monkeypatch, owner, name, bug)
    else:
        monkeypatch.setattr(owner, name, bug)
    with pytest.raises((AssertionError, ValueError, KeyError)):
        notices()
