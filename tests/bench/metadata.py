"""`python -m tests.bench.metadata [small] [big] [one] [restart]`: measure the cost of topics, up to 100,000 partitions.

- `small`: CreateTopics with one topic at a time, many one after another, and 500 at once.
- `big`: 100,000 partitions in 100 topics; `one`: in one topic. Each measures creation, image and snapshot, and kill -9
  of a broker that leads a third.
- `restart`: restarts of one of three brokers with 5,000 partitions.

Three controllers and three brokers run as processes; nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kraft.sim.chaos.hosts.leash import exit_on_signals, leashed
from tests.bench.admin import Address, Admin, Refused, wait_until_led
from tests.bench.contest import Figures, Goal, Row
from tests.bench.history import History
from tests.bench.own import Amounts
from tests.bench.table import Line, percentile, render
from tests.stages.started_clusters import KRAFT, LocalCluster, running

TOPICS_ONE_BY_ONE = 100
TOPICS_IN_A_ROW = 500
PARTITIONS = 100_000
PARTITIONS_AT_ONCE = 10_000
RESTART_PARTITIONS = 5_000
REPLICAS = 3
SETTLE_SECONDS_MAX = 300
IDLE_CORES = 0.2
LEADER_SECONDS_MAX = 30
LESS_IS_BETTER = False


SMALL_ROWS = (
    Row("topic-p50", "CreateTopics, RF 3: answered, p50", "ms", LESS_IS_BETTER, Goal(8)),
    Row("topic-p99", "CreateTopics, RF 3: answered, p99", "ms", LESS_IS_BETTER),
    Row("topic-visible", "CreateTopics, RF 3: visible on all, p50", "ms", LESS_IS_BETTER, Goal(15)),
    Row("topics-row", "500 topics one by one", "/s", goal=Goal(150)),
    Row("topics-batch", "500 topics in one request", "ms", LESS_IS_BETTER, Goal(100)),
)


def small_figures(cluster: LocalCluster, amounts: Amounts) -> Figures:
    """Measure the creation of topics with one partition: one at a time, many in a row, and many at once. Each time is
    measured until the response and until the topics are visible."""
    share = min(1.0, amounts.megabytes / Amounts().megabytes)
    in_a_row, mark = max(20, int(TOPICS_IN_A_ROW * share)), secrets.token_hex(4)
    admin = Admin(cluster.addresses[0])
    admin.create_topics([f"warm-{mark}"], partitions=1, replication_factor=REPLICAS)
    answered, visible = [], []
    for number in range(max(10, int(TOPICS_ONE_BY_ONE * share))):
        began = time.monotonic()
        admin.create_topics([f"single-{mark}-{number}"], partitions=1, replication_factor=REPLICAS)
        answered.append(1000 * (time.monotonic() - began))
        wait_until_led(cluster.addresses, f"single-{mark}-{number}", 1)
        visible.append(1000 * (time.monotonic() - began))
    began = time.monotonic()
    for number in range(in_a_row):
        admin.create_topics([f"row-{mark}-{number}"], partitions=1, replication_factor=REPLICAS)
    per_second = in_a_row / (time.monotonic() - began)
    began = time.monotonic()
    names = [f"batch-{mark}-{number}" for number in range(in_a_row)]
    admin.create_topics(names, partitions=1, replication_factor=REPLICAS)
    batch_ms = 1000 * (time.monotonic() - began)
    admin.close()
    return {
        "topic-p50": percentile(answered, 0.5),
        "topic-p99": percentile(answered, 0.99),
        "topic-visible": percentile(visible, 0.5),
        "topics-row": per_second,
        "topics-batch": batch_ms,
    }


SMALL_ALARMS = {"topic-p50": 40, "topic-visible": 65, "topics-row": 25, "topics-batch": 200}


def small() -> list[Line]:
    """Return the figures of `small_figures` for our cluster, as lines."""
    with running() as cluster:
        figures = small_figures(cluster, Amounts())
    return [
        Line(
            row.name,
            row.unit,
            figures[row.key],
            None if row.goal is None else row.goal.bound,
            SMALL_ALARMS.get(row.key),
            row.more_is_better,
        )
        for row in SMALL_ROWS
    ]


def large(topics: int) -> list[Line]:
    """Create 100,000 partitions in this many topics. Then kill a broker that leads a third of them."""
    name = f"100,000 partitions in {topics} topic{'s' if topics > 1 else ''}"
    each = PARTITIONS // topics
    names = [f"large-{number:03}" for number in range(topics)]
    with running() as cluster:
        admin = Admin(cluster.addresses[0])
        began = time.monotonic()
        for topic in names:
            admin.create_topics([topic], partitions=min(each, PARTITIONS_AT_ONCE - 1), replication_factor=REPLICAS)
            for count in range(PARTITIONS_AT_ONCE, each + 1, PARTITIONS_AT_ONCE):
                admin.grow_topic(topic, count)
        created_s = time.monotonic() - began
        wait_until_led(cluster.addresses, names[-1], each)
        visible_s = time.monotonic() - began
        open_files = max(len(os.listdir(f"/proc/{pid}/fd")) for pid in cluster.broker_pids)
        admin.close()
        settled_s = _settle(cluster)
        history = History(cluster.folder / str(FIRST_CONTROLLER))
        lines = [
            Line(f"{name}: created", "partitions/s", PARTITIONS / created_s, 5_000, 1_000),
            Line(f"{name}: visible on all", "partitions/s", PARTITIONS / visible_s, 5_000, 1_000),
            Line(f"{name}: until the brokers are idle again", "s", settled_s, None, None, LESS_IS_BETTER),
            Line(f"{name}: open files of a broker", "", open_files, 2_000, 10_000, LESS_IS_BETTER),
            Line(f"{name}: RSS of a broker", "MB", _resident_mb(cluster.broker_pids), None, None, LESS_IS_BETTER),
            *_image_lines(name, history),
        ]
        return [*lines, *_kill_lines(name, cluster)]


FIRST_CONTROLLER = 101


def _image_lines(name: str, history: History) -> list[Line]:
    size, load_s = history.measure_snapshot()
    return [
        Line(f"{name}: image", "MB", size / 1e6, 20, 60, LESS_IS_BETTER),
        Line(f"{name}: snapshot load", "s", load_s, 1, 5, LESS_IS_BETTER),
    ]


def _kill_lines(name: str, cluster: LocalCluster) -> list[Line]:
    """Kill broker 3 with SIGKILL. Measure when the last partition that it led has another leader in the log, and how
    long other requests waited for the active controller meanwhile."""
    asker = Asker(cluster)
    asker.start()
    time.sleep(0.5)
    killed_ms = int(time.time() * 1000)
    cluster.kill(3)
    time.sleep(6)
    asker.stop()
    history = History(cluster.folder / str(FIRST_CONTROLLER))
    led_ms, moved, left = history.left_leadership(3, since_ms=killed_ms)
    if left:
        raise RuntimeError(f"{left} partitions have still no other leader than broker 3")
    return [
        Line(f"{name}: kill -9, {moved:,} led again", "s", (led_ms - killed_ms) / 1000, 3, 10, LESS_IS_BETTER),
        Line(f"{name}: longest answer meanwhile", "ms", max(asker.waits_ms), 100, 500, LESS_IS_BETTER),
    ]


class Asker(threading.Thread):
    """Requests decisions of the active controller in a loop, and records the time of each response, from any
    controller."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(daemon=True)
        self.waits_ms: list[float] = []
        self._cluster = cluster
        self._admin = Admin(_active_controller(cluster))
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(0.005):
            began = time.monotonic()
            try:
                self._admin.decide_nothing()
            except (Refused, OSError):
                self._admin.close()
                self._admin = Admin(_active_controller(self._cluster))
                self._admin.decide_nothing()
            self.waits_ms.append(1000 * (time.monotonic() - began))

    def stop(self) -> None:
        self._is_over.set()
        self.join()


def _active_controller(cluster: LocalCluster) -> Address:
    host, port = cluster.addresses[0]
    deadline = time.monotonic() + LEADER_SECONDS_MAX
    while time.monotonic() < deadline:
        for number in range(3):
            address = (host, port + 100 + number)
            admin = Admin(address)
            try:
                admin.decide_nothing()
            except (Refused, OSError):
                continue
            finally:
                admin.close()
            return address
        time.sleep(0.01)
    raise RuntimeError(f"no controller is active for {LEADER_SECONDS_MAX} s")


def _settle(cluster: LocalCluster) -> float:
    """Wait until the brokers use less than a fifth of a core, and return the seconds. Before that, they create a
    hundred thousand folders each."""
    began = time.monotonic()
    while time.monotonic() - began < SETTLE_SECONDS_MAX:
        before = cluster.cpu_seconds()
        time.sleep(1)
        if cluster.cpu_seconds() - before < IDLE_CORES:
            break
    return time.monotonic() - began


def _resident_mb(pids: tuple[int, ...]) -> float:
    pages = max(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def restart() -> list[Line]:
    """Restart a broker of a cluster with 5,000 partitions, after a clean stop and after kill -9. Measure the time until
    it leads its share of the partitions."""
    with running() as cluster:
        admin = Admin(cluster.addresses[0])
        admin.create_topics(["many"], partitions=RESTART_PARTITIONS, replication_factor=1)
        wait_until_led(cluster.addresses, "many", RESTART_PARTITIONS)
        time.sleep(3)

        def stop() -> None:
            subprocess.run(
                [*KRAFT, "stop", "3", "--data", str(cluster.folder)],
                check=True,
                timeout=60,
                stdout=subprocess.DEVNULL,
            )

        clean = [_restart_once(cluster, stop) for _ in range(3)]
        killed = [_restart_once(cluster, lambda: cluster.kill(3)) for _ in range(3)]
        return [
            Line("5,000 partitions: restart after a stop", "s", statistics.median(clean), 1.5, 5, LESS_IS_BETTER),
            Line("5,000 partitions: restart after kill -9", "s", statistics.median(killed), 3, 10, LESS_IS_BETTER),
        ]


def _restart_once(cluster: LocalCluster, end: Callable[[], None]) -> float:
    """Return the seconds from the start command until the restarted broker reports a leader for every partition."""
    end()
    time.sleep(1.5)
    began = time.monotonic()
    start = [*KRAFT, "start", "3", "--data", str(cluster.folder)]
    with leashed(start, stdout=subprocess.DEVNULL, process_group=0) as starter:
        while True:
            try:
                wait_until_led(cluster.addresses[2:], "many", RESTART_PARTITIONS)
                seconds = time.monotonic() - began
                break
            except OSError:
                time.sleep(0.005)
        if starter.wait(timeout=60):
            raise RuntimeError(f"kraft start ended with {starter.returncode}")
        return seconds


def large_figures() -> Iterator[tuple[tuple[Row, ...], Figures]]:
    """Return the figures of our cluster for a hundred thousand partitions and for restarts, for the comparison's
    table."""
    for line in (*large(100), *large(1), *restart()):
        goal = None if line.target is None else Goal(line.target)
        yield (Row(line.name, line.name, line.unit, line.more_is_better, goal),), {line.name: line.figure}


PARTS: dict[str, Callable[[], list[Line]]] = {
    "small": small,
    "big": lambda: large(100),
    "one": lambda: large(1),
    "restart": restart,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.metadata", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which parts; default: all")
    lines: list[Line] = []
    for part in parser.parse_args().parts or list(PARTS):
        found = PARTS[part]()
        print(render(found), flush=True)
        lines += found
    return int(any(line.is_alarming for line in lines))


if __name__ == "__main__":
    exit_on_signals()
    sys.exit(main())
