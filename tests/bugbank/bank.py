"""All mutations, in the order of their numbers, and the numbers without a mutation here, with the reason."""

from __future__ import annotations

import re

from tests.bugbank import (
    client_bugs,
    control_bugs,
    group_bugs,
    harness_bugs,
    isr_bugs,
    log_bugs,
    node_bugs,
    raft_bugs,
)
from tests.bugbank.consumer_groups import consumer_group_bugs
from tests.bugbank.mutation import MUTATIONS, Mutation
from tests.bugbank.share_groups import share_group_bugs
from tests.bugbank.transactions import transaction_bugs

FILES = (
    raft_bugs,
    log_bugs,
    control_bugs,
    isr_bugs,
    group_bugs,
    consumer_group_bugs,
    share_group_bugs,
    transaction_bugs,
    client_bugs,
    node_bugs,
    harness_bugs,
)
"""Modules with mutations. Importing them registers the mutations."""


def _order(mutation: Mutation) -> tuple[str, int, str]:
    found = re.fullmatch(r"([BX])(\d+)(\w*)", mutation.id)
    assert found is not None, mutation.id
    return found[1], int(found[2]), found[3]


BANK = sorted(MUTATIONS, key=_order)

NOT_OPEN = {
    "B12": "no API promises linearizable reads: metadata are read from the image that a broker has published, as in "
    "Kafka; that a controller's answer depends on nothing uncommitted is M9 (B13, B31, B33)",
}
"""Numbers of the bank that have no mutation, each with the reason."""
EVERY_ID = (*(f"B{number:02}" for number in range(1, 84)), *(f"X{number:02}" for number in range(1, 11)))
