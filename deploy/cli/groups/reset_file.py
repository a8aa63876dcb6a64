"""Reset plans as files: CSV as Kafka's tool writes it, one `[group,]topic,partition,offset` per line."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed

if TYPE_CHECKING:
    from kraft.client.admin.reset import PlannedReset

Plan = tuple["PlannedReset", ...]
Plans = dict[str, Plan]
PlanRow = tuple[str | None, str, int, int]
"""Group, topic, partition and offset of one line of the file. A row without a group applies to every group."""


def read_plan(path: Path) -> list[PlanRow]:
    """Read the rows of a CSV file. Raise CommandFailed that names the first malformed line by its number."""
    try:
        text = path.read_text()
    except OSError as problem:
        raise CommandFailed(f"{path}: {problem.strerror}", code=EXIT_USAGE) from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{path}: this is not text, so it is not a plan", code=EXIT_USAGE) from None
    rows: list[PlanRow] = []
    for number, fields in enumerate(csv.reader(text.splitlines()), 1):
        if not fields or fields[0].startswith("#"):
            continue
        try:
            *group, topic, partition, offset = (field.strip() for field in fields)
            if len(group) > 1:
                raise ValueError
            if int(offset) < 0:
                raise ValueError
            rows.append((group[0] if group else None, topic, int(partition), int(offset)))
        except ValueError:
            raise CommandFailed(
                f"{path}, line {number}: expected [group,]topic,partition,offset, not {','.join(fields)}",
                code=EXIT_USAGE,
            ) from None
    if not rows:
        raise CommandFailed(f"{path}: the file has no line of [group,]topic,partition,offset", code=EXIT_USAGE)
    return rows


def write_plan(path: Path, plans: Plans) -> None:
    """Write plans in the format that `read_plan` reads. Raise CommandFailed if the file cannot be written."""
    try:
        with open(path, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            for group, plan in plans.items():
                writer.writerows((group, one.topic, one.partition, one.after) for one in plan)
    except OSError as problem:
        raise CommandFailed(f"--export {path}: {problem.strerror}; nothing was changed", code=EXIT_USAGE) from None
