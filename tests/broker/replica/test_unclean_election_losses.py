"""Losses of acknowledged records: the checks accept them only after a committed unclean election."""

from __future__ import annotations

from kraft.image.events import PartitionChange
from kraft.image.replay import replay
from kraft.sim.cores.replicas.checks import ReplicaChecks
from kraft.sim.cores.replicas.ledger import Committed
from kraft.sim.cores.replicas.log import ReplicaBatch
from kraft.sim.cores.replicas.world import ReplicaWorld


def one_batch_is_committed() -> tuple[ReplicaWorld, ReplicaChecks]:
    """Create a state in which all brokers are active, replicas 1 and 2 hold the only batch, and replica 3 is empty."""
    checks = ReplicaChecks()
    world = ReplicaWorld(1, 3, witness=checks)
    world.controller.start()
    world.start()
    world.run(2_000)
    assert world.is_whole()
    epoch = world.state.leader_epoch
    for broker in (1, 2):
        world.brokers[broker].log.append(ReplicaBatch(0, 4, epoch, 77))
    checks.ledger.committed[4] = Committed(epoch, 77)
    checks.ledger.end = 4
    return world, checks


def decide(world: ReplicaWorld, checks: ReplicaChecks, *reported: int, leader: int) -> None:
    """Let the controller decide to elect this leader while ISR and ELR are empty, two epochs after the committed
    epoch."""
    brokers = world.brokers
    checks.on_recovery(
        [brokers[one] for one in reported], brokers[leader], world.state.leader_epoch + 2, waited_ms=1_000
    )


def commit(world: ReplicaWorld, checks: ReplicaChecks, leader: int) -> None:
    """Commit the election of this leader; ISR and ELR are empty before it."""
    image = world.controller.committed
    for isr, chosen, last_known in (((), -1, (1,)), ((leader,), leader, ())):
        change = PartitionChange(world.topic_id, 0, isr=isr, leader=chosen, last_known_elr=last_known)
        before, image = image, replay(image, (change,), image.offset + 1, 1)
        checks.on_commit(world, before, image, (change,))


def test_a_committed_unclean_election_excuses_the_records_that_its_leader_lacks() -> None:
    world, checks = one_batch_is_committed()
    decide(world, checks, 3, leader=3)
    commit(world, checks, 3)
    assert not checks.ledger.committed


def test_an_unclean_election_lost_with_its_controller_excuses_no_records() -> None:
    """The next controller elects a complete replica in the same leader epoch."""
    world, checks = one_batch_is_committed()
    decide(world, checks, 3, leader=3)
    decide(world, checks, 1, 3, leader=1)
    commit(world, checks, 1)
    assert set(checks.ledger.committed) == {4}
