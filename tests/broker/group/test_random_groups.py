"""Random members that join, leave, stall and return in any order, over a log that commits late, loses records and
moves.

Invariants at every step:
- a request is answered at most once;
- an assignment is the one that the leader of the generation sent;
- synced generations increase;
- an acknowledged offset is never followed by an older one.

At the end, without further disturbances, every member is in one stable group, and every request is answered.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraft.broker.group.requests import SyncReply
from kraft.wire.error_codes import ErrorCode
from tests.stages.group_bench import GROUP, RANGE, REBALANCE_MS, Bench, PendingRequest

REJOIN_WITHOUT_ID = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
PROTOCOLS = (RANGE, (*RANGE, ("roundrobin", b"")))


class Client:
    """A member that follows the protocol, one request at a time."""

    def __init__(self, trial: Trial, instance_id: str | None) -> None:
        self.trial = trial
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.assigned: int | None = None
        self.asked: PendingRequest | None = None
        self.is_dead = False

    def act(self) -> None:
        """Send the next request of the protocol, if the last request is answered."""
        if self.is_dead or (self.asked is not None and self.asked.is_parked):
            return
        last, self.asked = self.asked, None
        if last is None or not hasattr(last.reply, "assignment"):
            self._after_join(last)
        else:
            self._after_sync(last)

    def _after_join(self, last: PendingRequest | None) -> None:
        if last is None:
            self._beat() if self.assigned is not None else self._join()
        elif last.error in REJOIN_WITHOUT_ID:
            self._lost()
        elif last.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = last.reply.member_id
            self._join()
        elif last.error is not ErrorCode.NONE:
            self._join()
        else:
            reply = last.reply
            self.member_id, self.generation = reply.member_id, reply.generation
            assignments = [(one, self.trial.sent(self, one)) for one, _, _ in reply.members]
            if reply.skip_assignment:
                assignments = []
            self.asked = self.trial.bench.sync(
                self.member_id, self.generation, *assignments, instance_id=self.instance_id
            )

    def _after_sync(self, last: PendingRequest) -> None:
        if last.error in REJOIN_WITHOUT_ID:
            self._lost()
        elif last.error is not ErrorCode.NONE:
            self._join()
        else:
            self.trial.assigned(self, last.reply.assignment)
            self.assigned = self.generation

    def _beat(self) -> None:
        error = self.trial.bench.heartbeat(self.member_id, self.generation, self.instance_id)
        if error in REJOIN_WITHOUT_ID:
            self._lost()
        elif error is not ErrorCode.NONE:
            self.assigned = None
        elif self.trial.random.random() < 0.3:
            self.trial.commit(self)

    def _lost(self) -> None:
        self.member_id = ""
        self.assigned = None

    def _join(self) -> None:
        self.assigned = None
        self.asked = self.trial.bench.join(
            self.member_id,
            instance_id=self.instance_id,
            requires_known_id=self.trial.random.random() < 0.7,
            protocols=self.trial.random.choice(PROTOCOLS),
        )


class Trial:
    """A group coordinator with random clients, and a record of the responses that they got."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.bench = Bench(initial_rebalance_delay_ms=self.random.choice((0, 3_000)))
        self.clients: list[Client] = []
        self.asked: list[PendingRequest] = []
        self.plans: dict[bytes, tuple[str, int]] = {}
        self.synced_generation = 0
        self.next_offset = 0
        self.acknowledged = -1
        self.commits: list[PendingRequest] = []
        ask = self.bench.ask
        self.bench.on_reply = self.check_generation  # type: ignore[method-assign]
        self.bench.ask = lambda request: self._noted(ask(request))  # type: ignore[method-assign]

    def _noted(self, asked: PendingRequest) -> PendingRequest:
        self.asked.append(asked)
        return asked

    def sent(self, leader: Client, member_id: str) -> bytes:
        plan = f"{leader.generation}:{leader.member_id}:{member_id}:{len(self.plans)}".encode()
        self.plans[plan] = (member_id, leader.generation)
        return plan

    def assigned(self, client: Client, assignment: bytes) -> None:
        """Check G5: an assignment reaches only the member and the generation for which it was made."""
        if assignment:
            _, generation = self.plans[assignment]
            assert generation == client.generation
            if client.instance_id is None:
                assert self.plans[assignment][0] == client.member_id

    def check_generation(self, reply: Any) -> None:
        """Check G1: synced generations never decrease."""
        if isinstance(reply, SyncReply) and reply.assignment:
            _, generation = self.plans[reply.assignment]
            assert generation >= self.synced_generation
            self.synced_generation = generation

    def commit(self, client: Client) -> None:
        self.next_offset += 1
        self.commits.append(self.bench.commit_offset(self.next_offset, client.member_id, client.generation))

    def check_offsets(self) -> None:
        """Check G3: the committed offset is the acknowledged offset or a newer one."""
        for asked in self.commits:
            if not asked.is_parked and asked.reply.rows[0].error is ErrorCode.NONE:
                self.acknowledged = max(self.acknowledged, asked.request.offsets[0].offset)  # type: ignore[union-attr]
        self.commits = [asked for asked in self.commits if asked.is_parked]
        assert self.bench.committed() >= self.acknowledged

    def disturb(self) -> None:
        """Cause one random event."""
        bench, draw = self.bench, self.random.random()
        if draw < 0.08 and len(self.clients) < 6:
            instances = {client.instance_id for client in self.clients}
            free = [one for one in ("i1", "i2", "i3") if one not in instances]
            self.clients.append(Client(self, self.random.choice([None, *free])))
        elif draw < 0.12 and self.clients:
            client = self.random.choice(self.clients)
            client.is_dead = True
            self.clients.remove(client)
            if client.instance_id is not None or self.random.random() < 0.5:
                self.clients.append(Client(self, client.instance_id))
        elif draw < 0.14 and self.clients:
            client = self.random.choice(self.clients)
            if client.member_id:
                bench.leave(client.member_id)
        elif draw < 0.30:
            bench.commits_at_once = not bench.commits_at_once
        elif draw < 0.34:
            bench.lose()
        elif draw < 0.36:
            if draw < 0.35:
                bench.commit()
            bench.move()
        elif draw < 0.38:
            bench.refuses_appends = None if bench.refuses_appends else ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif draw < 0.6:
            bench.sleep(self.random.choice((1, 500, 3_000, 12_000)))
        else:
            bench.commit()

    def settle(self) -> None:
        """Stop all disturbances. Check that a group with live members becomes stable and that dead members are
        removed."""
        bench = self.bench
        bench.refuses_appends, bench.commits_at_once = None, True
        for _ in range(6 * REBALANCE_MS // 500 + 40):
            bench.commit()
            for client in self.clients:
                client.act()
            bench.sleep(500)


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 40))])
def test_groups_keep_their_invariants_under_random_members_and_log_failures(seed: int) -> None:
    trial = Trial(seed)
    trial.clients = [Client(trial, None), Client(trial, "i1")]
    for _ in range(250):
        trial.disturb()
        trial.check_offsets()
        for client in list(trial.clients):
            if trial.random.random() < 0.6:
                client.act()
    trial.settle()
    trial.check_offsets()
    assert not [asked for asked in trial.asked if asked.is_parked]
    if trial.clients:
        group = trial.bench.machine.groups[GROUP]
        assert group.state.value == "Stable"
        assert set(group.members) == {client.member_id for client in trial.clients}
        assert {client.assigned for client in trial.clients} == {group.generation}
