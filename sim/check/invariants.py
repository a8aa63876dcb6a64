"""What must hold, by its code, where no class of a check says it: what a run itself judges, and what other tests do.

`RUN_JUDGES` are codes under which a run of whole nodes reports without a `Check`; `JUDGED_ELSEWHERE` those of the list
that it does not report under their own code, and who looks instead. With the checks these are all
(docs/invariants.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Judged:
    """What must hold, and the file that judges it."""

    statement: str
    file: str


_HISTORIES, _LAST_LOOK = "sim/check/histories/client_histories.py", "sim/cluster/last_look.py"
_RUN, _WORKLOAD = "sim/run/run.py", "sim/workload/workload.py"

RUN_JUDGES: Mapping[str, Judged] = MappingProxyType(
    {
        "D7": Judged("A replica remembers the leader epochs that the batches of its log have.", _LAST_LOOK),
        "D10": Judged(
            "What any reader was given stands in the log at that offset, for all others and in the end.", _HISTORIES
        ),
        "D12": Judged("A log is after a start what it was when its node ended.", _LAST_LOOK),
        "D13": Judged("Each entry of an offset index names a batch: where it starts, and its last offset.", _LAST_LOOK),
        "D14": Judged("Readers are given what was sent, and nothing else.", _HISTORIES),
        "T3": Judged("A replica's producer states are those of the batches of its log.", _LAST_LOOK),
        "M10": Judged("A broker has no replica but those that the metadata give it, under the topic's id.", _LAST_LOOK),
        "C1": Judged(
            "Acknowledged records of an idempotent producer stand in the order in which they were sent.", _HISTORIES
        ),
        "C7": Judged("A record whose sending is said to have failed for certain is never read.", _HISTORIES),
        "L3": Judged("The cluster comes up: all registered, caught up and unfenced.", _RUN),
        "L5": Judged(
            "After the faults all nodes run, brokers are unfenced, partitions have leaders, replicas are in sync.", _RUN
        ),
        "L6": Judged("Replicas become equal to their ends; no record waits while all replicas are in sync.", _RUN),
        "L7": Judged("Each delivery of acks=all comes to its end, and to a good one.", _WORKLOAD),
        "L10": Judged("A fresh reader is given each acknowledged record where it was said to stand.", _HISTORIES),
        "L11": Judged("What retention lets go is gone in the end.", "sim/workload/retention_work.py"),
        "L13": Judged("Time goes on: there is no deadlock, and nobody runs on while time stands still.", _RUN),
        "N1": Judged("No node stops or logs an error but by a fault that was meant.", "sim/cluster/findings.py"),
        "N3": Judged("At rest no request waits at a broker but those of followers.", _LAST_LOOK),
        "N5": Judged(
            "Nothing reaches for the real clock, chance, threads, sockets or files.", "sim/world/tripwires.py"
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What must hold, and who judges it, or why nobody does."""

    statement: str
    who: str


_CORES = "sim/cores/checks.py"
_CORE_ALONE = "of cores alone, while voters are dead, deaf or mute for good (sim/cores/core_alone.py)"


def _of_transactions(statement: str) -> Elsewhere:
    return Elsewhere(statement, "there is no transaction coordinator yet")


JUDGED_ELSEWHERE: Mapping[str, Elsewhere] = MappingProxyType(
    {
        "R10": Elsewhere(
            "What is committed is on the device of a voter of every majority.",
            f"of cores alone after each input ({_CORES}); of whole nodes by R9 at each commit, "
            "and R11 of each voter later",
        ),
        "R17": Elsewhere(
            "A message of an older epoch changes nothing but that it is answered.",
            f"of cores alone after each input ({_CORES}); of whole nodes that no message is ahead of its disk is R3's",
        ),
        "M14": Elsewhere(
            "Each committed record can be replayed.", "one that cannot ends its node (N1), and M2 replays it, too"
        ),
        "D15": Elsewhere(
            "A request with another leader epoch than the leader's is refused, and changes nothing.",
            "tests/broker/api/fetch/test_fetch.py, tests/protocol/test_error_answers.py",
        ),
        "D17": Elsewhere(
            "Compaction keeps the latest value of each key, in order and at its offset.",
            "tests/storage/test_cleaner_against_a_twin.py",
        ),
        "T5": _of_transactions("All partitions of a transaction have the same marker."),
        "T6": _of_transactions("read_committed gives no record of a transaction that is open, or was aborted."),
        "T7": _of_transactions("No transaction stays open."),
        "T8": _of_transactions(
            "A marker is written when its decision is committed, and a transaction ends behind its markers."
        ),
        "T9": _of_transactions("What a client is told of a transaction is what became of it."),
        "T10": _of_transactions("No two callers get one producer id and epoch."),
        "T11": _of_transactions("Offsets of a transaction are committed with it, and only then."),
        "T12": _of_transactions("A transaction writes only to partitions that are enrolled in it."),
        "C3": Elsewhere(
            "A client never goes back to an older leader epoch.", "tests/client, and B69 of the bank of bugs"
        ),
        "C4": Elsewhere("Each record is settled once.", "of producers by L7; tests/client"),
        "C6": Elsewhere("An answer goes to the request that it is for.", "tests/wire/test_client_connection.py"),
        "N2": Elsewhere(
            "A request may be cancelled anywhere.",
            "tests/client/test_cancellation.py; nodes are killed anywhere",
        ),
        "N4": Elsewhere(
            "What is sent is encoded, and decoded to the same.",
            "bytes pass between nodes, in a world too; tests/wire, tests/protocol",
        ),
        "N6": Elsewhere("The same seed is the same run.", "kraft sim determinism, tests/sim/run/test_trace_hashes.py"),
        "N7": Elsewhere(
            "The checks have seen what could have been wrong.",
            "one that has not is told as unknown, which a campaign of 30 seeds must not leave",
        ),
        "L1": Elsewhere("Voters come to one leader.", f"{_CORE_ALONE}; of whole nodes by L5"),
        "L2": Elsewhere("Then its epoch stays, whoever is outside.", f"{_CORE_ALONE}; of whole nodes by K4b"),
        "L4": Elsewhere("Each partition has a leader.", "reported as L5"),
        "L9": _of_transactions("In the end the last stable offset is the high watermark."),
        "L12": Elsewhere("Without clients nodes say no more than that they live.", _CORE_ALONE),
    }
)
"""By code."""
