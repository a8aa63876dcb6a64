"""Transactional programs: each foreign client has the same three commands, and no scenario of its own.

    transact BOOTSTRAP TOPIC TRANSACTIONAL_ID
        A producer that carries out the lines of standard input and answers each with one line: `init`, `begin`,
        `send PARTITION VALUE`, `commit`, `abort`. The answer to `send` comes when the record is acknowledged.
    copy BOOTSTRAP INPUT OUTPUT GROUP TRANSACTIONAL_ID
        Consume INPUT in a group, produce `copied-VALUE` to the same partition of OUTPUT, and commit both in one
        transaction, until standard input ends. Print `sent` when the records of a transaction are acknowledged,
        `offsets` when its offsets are, and `committed` at its end.
    committed BOOTSTRAP TOPIC
        Print every committed value, until standard input ends.

Answers of `transact`: `done`; `fenced ERROR` if the library reports that another producer took over; `abortable ERROR`
if the transaction is to be aborted; `unknown ERROR` if the library cannot tell how it ended; `failed ERROR` otherwise.
All topics have PARTITIONS partitions. A program that fails prints the reason on standard error and exits with a code
other than 0.

This module is the part that the Python programs share. Programs in other languages are in the folders beside this one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Protocol

PARTITIONS = 2
PARTITIONS_RANGE = range(PARTITIONS)
SESSION_MS = 2_000
"""Session timeout in the group of `copy`: its successor gets the partitions of a killed process after this time."""
BATCH_RECORDS_MAX = 20
"""Maximum records of one transaction of `copy`."""
COPIED = "copied-"


class Fenced(Exception):
    """The library reports that another producer with this transactional id took over."""


class Abortable(Exception):
    """The library asks for an abort of the transaction."""


class UnknownOutcome(Exception):
    """The library cannot tell how the transaction ended."""


class Producer(Protocol):
    """One library's transactional producer. Each call raises an exception of this module or of the library."""

    def init(self) -> None: ...
    def begin(self) -> None: ...

    def send(self, topic: str, records: list[tuple[int, str]]) -> None:
        """Produce pairs of partition and value. Return when all are acknowledged."""
        ...

    def commit(self) -> None: ...
    def abort(self) -> None: ...


def carry_out(producer: Producer, topic: str) -> None:
    """Run the command `transact`."""
    for line in sys.stdin:
        verb, *words = line.split()
        try:
            if verb == "send":
                producer.send(topic, [(int(words[0]), words[1])])
            else:
                {"init": producer.init, "begin": producer.begin, "commit": producer.commit, "abort": producer.abort}[
                    verb
                ]()
        except Fenced as error:
            answer = f"fenced {error}"
        except Abortable as error:
            answer = f"abortable {error}"
        except UnknownOutcome as error:
            answer = f"unknown {error}"
        except Exception as error:  # noqa: BLE001 - the answer has it
            answer = f"failed {type(error).__name__} {error}"
        else:
            answer = "done"
        report(answer)


def report(line: str) -> None:
    """Print one line of output, complete even if the process is killed next."""
    print(" ".join(line.split()), flush=True)


def standard_input_ends() -> threading.Event:
    """Return an event that is set when standard input ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def run(commands: dict[str, Callable[..., None]]) -> None:
    """Run the command that the arguments of this process name."""
    verb, *words = sys.argv[1:]
    commands[verb](*words)
