"""Names of the product that nothing in the product uses: `python -m tests.architecture.dead_names`, or `make dead`.

vulture finds them, without the tests: a name that only tests use is dead too. `STAYS` has the names that are used in a
way that vulture does not see, and those that stay for a reason. vulture compares names, not objects, so a dead method
is not found while another class has a method of the same name that is used.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDERS = ("broker", "client", "deploy", "kraft", "sim")
LINKS = ("broker", "client", "deploy", "sim")
"""Links in kraft/ to the folders of the same name."""
DECORATORS = ("@app.*", "@*.command*", "@*.callback*", "@pytest.*")
"""Patterns of decorators whose functions typer or pytest calls."""

STAYS: Mapping[str, str] = MappingProxyType(
    {
        "Kafka's codes, as whole tables": "client/admin/access.py kraft/wire/error_codes.py",
        "settings of a topic, read by the names in their table": "kraft/config/topic.py",
        "attributes of another library's objects": """
            __annotations__ __signature__ accesslog disabled errorlog graceful_timeout short_help
            shutdown_timeout""",
        "Python's own names": "__dir__ __func__ __getattr__",
        "called by trio": "after_io_wait before_io_wait deadline_to_sleep_time start_clock",
        "called by pytest": "pytest_addoption pytest_configure pytest_generate_tests",
        "called by Spark": """
            getDefaultReadLimit initialOffset latestOffset onQueryProgress onQueryStarted onQueryTerminated
            prepareForTriggerAvailableNow reportLatestOffset streamReader streamWriter""",
        "columns, options and values of templates, read by name": """
            future_replicas include_headers is_tombstone lag_time_ms more_headers picture_uri preferred_leaders
            rows_total""",
        "rows of a report, written field by field": "max_ms p50_ms p95_ms",
        "loaded by name": "ConfluentLibrary KafkaPythonLibrary",
        "one of a row of names, of which others are used": """
            ADD_VOTER DISABLED FISH JOIN_AGAIN OPERATION WAITED_FOR ZSH""",
        "verbs of the command line": "consume logdirs rolling_restart",
        "public interface of kraft.client and kraft.sim": """
            acquisition_lock_ms degrade fail_next isolate parse_mark partitions_for seek_to without_duplicates""",
        "how tests look at metrics, files, connections and recovery": """
            admits_row cold_reads exposition known_peers open_files reached_end request_classes segments_read stray""",
        "used by make docs": "JUDGED_ELSEWHERE render_options render_table verdict_from_json",
        "used by benchmarks and interop": """
            QUICK_NODE_JVM TOOL_JVM end_with_parent exit_on_signals leashed of_racks require_alive""",
        "used by tests of simulation and chaos": """
            ballast_bytes calls_as_lines lost_packets meaning_of proxy_log proxy_pid run_chaos""",
        "fields of a report that is logged whole": "cut_at segments_removed",
    }
)
"""Reason → the names that stay unused for this reason, or a file whose names all stay."""


class Unused(NamedTuple):
    path: str
    line: int
    name: str


def unused_names(root: Path) -> Iterator[Unused]:
    """Return all names that vulture finds in the product's folders below `root`."""
    found = subprocess.run(
        [
            *(sys.executable, "-m", "vulture", *(folder for folder in FOLDERS if (root / folder).is_dir())),
            *("--min-confidence", "60", "--exclude", ",".join(f"*/kraft/{link}/*" for link in LINKS)),
            *("--ignore-decorators", ",".join(DECORATORS)),
        ],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.stderr:
        raise RuntimeError(found.stderr)
    for line in found.stdout.splitlines():
        path, number, name = re.match(r"(.*?):(\d+): .*?'(.*?)'", line).groups()  # type: ignore[union-attr]
        yield Unused(path, int(number), name)


def main() -> int:
    """Print the dead names, and listed names that are used after all. Return 1 if a name is dead."""
    stays = {name for names in STAYS.values() for name in names.split()}
    found = list(unused_names(ROOT))
    dead = [one for one in found if one.name not in stays and one.path not in stays]
    for one in dead:
        print(f"{one.path}:{one.line}: {one.name} is not used: remove it, or give a reason in {Path(__file__).name}")
    for name in sorted(stays - {one.name for one in found} - {one.path for one in found}):
        print(f"{name} needs no reason any more")
    print(f"dead names: {len(dead)}; with a reason: {len(found) - len(dead)}")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
