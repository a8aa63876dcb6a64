"""Command-line options of `kraft consume`."""

from __future__ import annotations

from typing import Annotated

import typer

from kraft.deploy.cli.completing import complete_group, complete_topic, one_of

READ_COMMITTED = "read_committed"
ISOLATION_LEVELS = (READ_COMMITTED, "read_uncommitted")
GROUP_PROTOCOLS = ("classic", "consumer")

# where to read

TopicsArgument = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC[:0,2-4]…", autocompletion=complete_topic, help="All partitions, or these."),
]
PartitionOption = Annotated[
    list[int] | None, typer.Option("--partition", "-p", help="Only this partition; may be repeated.")
]
OffsetOption = Annotated[
    str | None,
    typer.Option(
        "--offset",
        "-o",
        metavar="START[:END]",
        show_default="earliest",
        help="earliest, latest, a number, or -N: the last N of a partition.",
        autocompletion=one_of("earliest", "latest"),
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Records from this time on: 2026-11-21T10:00:00, ms since 1970, or -1h."),
]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="Records before this time.")]
CountOption = Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after this number of records.")]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Wait for new records at the end, until ctrl-C.")]

# as a member of which group

GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        autocompletion=complete_group,
        help="Read as a member of this group, until ctrl-C or -n.",
    ),
]
ProtocolOption = Annotated[
    str | None,
    typer.Option(
        "--group-protocol",
        metavar="PROTOCOL",
        show_default="classic",
        help="How to join the group: classic; or consumer: the brokers assign partitions (KIP-848).",
        autocompletion=one_of(*GROUP_PROTOCOLS),
    ),
]
ShareGroupOption = Annotated[
    str | None,
    typer.Option(
        "--share-group",
        metavar="GROUP",
        autocompletion=complete_group,
        help="Read as a member of this share group (KIP-932), until ctrl-C or -n; accept what is printed.",
    ),
]
ReleaseOption = Annotated[
    bool, typer.Option("--release", help="With --share-group: release what is printed, for another delivery.")
]
RejectOption = Annotated[
    bool, typer.Option("--reject", help="With --share-group: reject what is printed, for all members.")
]

# which records, and how they are printed

IsolationOption = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        show_default="read_uncommitted",
        help="read_committed: only records of committed transactions; or read_uncommitted.",
        autocompletion=one_of(*ISOLATION_LEVELS),
    ),
]
KeyOption = Annotated[
    str | None, typer.Option(metavar="REGEX", help="Only records whose key matches this regular expression.")
]
ValueOption = Annotated[
    str | None, typer.Option(metavar="REGEX", help="Only records whose value matches this regular expression.")
]
HeaderOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME[=REGEX]", help="Only records with this header; may be repeated.")
]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", "-F", help=r"As kcat's: %t %p %o %T %k %s %h %K %S, \n \t; e.g. '%p %o %k: %s\n'."),
]
