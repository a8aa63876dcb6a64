"""Statements of the invariants that no `Check` class defines.

`RUN_JUDGES` holds the codes that a run of whole nodes reports without a `Check`. `JUDGED_ELSEWHERE` holds the codes
that a run does not report, and where they are checked instead. Together with the checks, these are all invariants of
docs/invariants.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class JudgedInvariant:
    """An invariant, and the file that checks it."""

    statement: str
    file: str


_HISTORIES, _QUIESCENT_CHECKS = "sim/check/histories/client_histories.py", "sim/cluster/quiescent_checks.py"
_TRANSACTIONS = "sim/workload/transaction_work.py"
_TRANSACTION_HISTORIES = "sim/check/transactions/histories.py"
_RUN, _WORKLOAD = "sim/run/run.py", "sim/workload/workload.py"

RUN_JUDGES: Mapping[str, JudgedInvariant] = MappingProxyType(
    {
        "D7": JudgedInvariant("A replica's leader epochs are those of the batches of its log.", _QUIESCENT_CHECKS),
        "D10": JudgedInvariant(
            "A record that any reader got is in the log at that offset, for all readers and at the end.", _HISTORIES
        ),
        "D12": JudgedInvariant("A restart does not change a log.", _QUIESCENT_CHECKS),
        "D13": JudgedInvariant(
            "Each entry of an offset index names a batch by its position and its last offset.", _QUIESCENT_CHECKS
        ),
        "D14": JudgedInvariant("Readers get only records that were sent.", _HISTORIES),
        "T3": JudgedInvariant("A replica's producer states are those of the batches of its log.", _QUIESCENT_CHECKS),
        "T5": JudgedInvariant(
            "A reader of committed records gets all records of a committed transaction.", _TRANSACTION_HISTORIES
        ),
        "T6": JudgedInvariant(
            "A reader of committed records gets no record of a transaction that is open or was aborted.",
            _TRANSACTION_HISTORIES,
        ),
        "T7": JudgedInvariant(
            "After the faults and the longest timeout no transaction is open, and none is decided and not complete.",
            _TRANSACTIONS,
        ),
        "T9": JudgedInvariant(
            "The outcome of a transaction that its producer was told is its actual outcome; only its own producer "
            "commits it.",
            _TRANSACTION_HISTORIES,
        ),
        "T11": JudgedInvariant(
            "A group's offsets are those of the last committed transaction; each committed record is processed once.",
            _TRANSACTION_HISTORIES,
        ),
        "L9": JudgedInvariant("In the end each last stable offset is the high watermark.", _TRANSACTIONS),
        "M10": JudgedInvariant(
            "A broker has only replicas that the metadata assign to it, under the topic's id.", _QUIESCENT_CHECKS
        ),
        "C1": JudgedInvariant(
            "Acknowledged records of an idempotent producer are in the order in which they were sent.", _HISTORIES
        ),
        "C7": JudgedInvariant("A record whose send was reported as certainly failed is never read.", _HISTORIES),
        "L3": JudgedInvariant("The cluster starts: all brokers are registered, caught up and unfenced.", _RUN),
        "L5": JudgedInvariant(
            "After the faults all nodes run, brokers are unfenced, partitions have leaders, replicas are in sync.", _RUN
        ),
        "L6": JudgedInvariant(
            "Replicas become equal up to their ends; no record stays uncommitted while all replicas are in sync.", _RUN
        ),
        "L7": JudgedInvariant(
            "Each delivery with acks=all ends, with success; no transactional producer is fenced without a cause.",
            _WORKLOAD,
        ),
        "L10": JudgedInvariant("A fresh reader gets each acknowledged record at its acknowledged offset.", _HISTORIES),
        "L11": JudgedInvariant(
            "Records past their retention are deleted at the end.", "sim/workload/retention_work.py"
        ),
        "L13": JudgedInvariant(
            "Time advances: there is no deadlock, and no task runs endlessly while time stands still.", _RUN
        ),
        "N1": JudgedInvariant("No node stops or logs an error except by an injected fault.", "sim/cluster/findings.py"),
        "N3": JudgedInvariant(
            "At rest no request is pending at a broker except those of followers.", _QUIESCENT_CHECKS
        ),
        "N5": JudgedInvariant(
            "No code uses the real clock, randomness, threads, sockets or files.", "sim/world/tripwires.py"
        ),
    }
)


@dataclass(frozen=True, slots=True)
class InvariantJudgedElsewhere:
    """An invariant, and where it is checked, or why it is not checked."""

    statement: str
    who: str


_CORES = "sim/cores/checks.py"
_CORE_ALONE = "of cores alone, while voters stay dead, deaf or mute (sim/cores/core_alone.py)"


JUDGED_ELSEWHERE: Mapping[str, InvariantJudgedElsewhere] = MappingProxyType(
    {
        "R10": InvariantJudgedElsewhere(
            "Each committed record is durable on a voter of every majority.",
            f"of cores alone after each input ({_CORES}); of whole nodes by R9 at each commit, "
            "and R11 of each voter later",
        ),
        "R17": InvariantJudgedElsewhere(
            "A message of an older epoch is answered, and changes nothing else.",
            f"of cores alone after each input ({_CORES}); R3 judges that no node's message is ahead of its disk",
        ),
        "M14": InvariantJudgedElsewhere(
            "Each committed record can be replayed.", "a record that cannot ends its node (N1), and M2 replays it, too"
        ),
        "D15": InvariantJudgedElsewhere(
            "A request with another leader epoch than the leader's is rejected, and changes nothing.",
            "tests/broker/api/fetch/test_fetch.py, tests/protocol/test_error_answers.py",
        ),
        "D17": InvariantJudgedElsewhere(
            "Compaction keeps the latest value of each key, in order and at its offset.",
            "tests/storage/test_cleaner_against_a_model.py",
        ),
        "C3": InvariantJudgedElsewhere(
            "A client never goes back to an older leader epoch.", "tests/client, and B69 of the bug bank"
        ),
        "C4": InvariantJudgedElsewhere("Each record is settled exactly once.", "of producers by L7; tests/client"),
        "C6": InvariantJudgedElsewhere(
            "A response is matched with its own request.", "tests/wire/test_client_connection.py"
        ),
        "N2": InvariantJudgedElsewhere(
            "A request may be cancelled anywhere.",
            "tests/client/test_cancellation.py; nodes are killed anywhere",
        ),
        "N4": InvariantJudgedElsewhere(
            "Decoding an encoded message gives the same message.",
            "bytes pass between nodes, in a world too; tests/wire, tests/protocol",
        ),
        "N6": InvariantJudgedElsewhere(
            "The same seed is the same run.", "kraft sim determinism, tests/sim/run/test_trace_hashes.py"
        ),
        "N7": InvariantJudgedElsewhere(
            "The checks had input that could have broken each invariant.",
            "a check without input is reported as unknown, which a campaign of 30 seeds must not leave",
        ),
        "L1": InvariantJudgedElsewhere("Voters elect one leader.", f"{_CORE_ALONE}; of whole nodes by L5"),
        "L2": InvariantJudgedElsewhere(
            "Then its epoch does not change, whatever the nodes outside the majority do.",
            f"{_CORE_ALONE}; of whole nodes by K4b",
        ),
        "L4": InvariantJudgedElsewhere("Each partition has a leader.", "reported as L5"),
        "L12": InvariantJudgedElsewhere("Without clients nodes send only heartbeats and fetches.", _CORE_ALONE),
    }
)
"""Code of an invariant that a run does not report → the invariant, and where it is checked."""
