"""`python -m tests.demo`: the exit code is 0 if nothing that was acknowledged was lost, and nothing was doubled."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout, new_cluster_id
from kraft.deploy.launch.ports import is_free
from tests.demo.picture import draw_in_terminal, draw_png
from tests.demo.scenario import Scenario

FIRST_PORT, LAST_PORT, STEP = 19092, 29092, 500


def main() -> int:
    """Run the demo; its exit code."""
    arguments = _arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    layout = ClusterLayout(port=arguments.port or _free_port())
    folder = ClusterFolder(arguments.data or tempfile.mkdtemp(prefix="kraft-demo-"))
    say("three controllers and three brokers, as `kraft up` starts them")
    start = time.monotonic()
    # The cluster is attached to this process: it goes down and is removed with it, even after kill -9.
    cluster = LocalCluster.up(folder, layout, new_cluster_id(), is_temporary=not arguments.data)
    try:
        cluster.wait_ready()
        say(f"ready after {time.monotonic() - start:.2f} s at {cluster.bootstrap_servers}")
        scenario = Scenario(cluster, say)
        scenario.run()
        return _report(scenario, arguments.picture)
    finally:
        cluster.down()


def _report(scenario: Scenario, picture: Path) -> int:
    ledger = scenario.ledger
    lost, doubled = ledger.lost(), ledger.doubled()
    say("")
    say(draw_in_terminal(scenario))
    say("")
    say(f"{'killed':34}{'gap here':>12}{'Apache Kafka':>16}")
    for kill in scenario.kills:
        what = f"node {kill.node_id}, the {kill.role}"
        say(f"{what:34}{kill.gap_ms:>9.0f} ms{kill.kafka_ms:>13} ms")
        if kill.topic_gap_ms is not None:
            say(f"{'  (until a topic can be created; writes stood still for':34} {kill.write_gap_ms:.0f} ms)")
    say("")
    say(f"sent {ledger.sent}, acknowledged {len(ledger.acknowledged)}, lost {len(lost)}, doubled {len(doubled)}")
    for problem in ledger.failed[:5]:
        say(f"not acknowledged: {problem}")
    draw_png(scenario, picture)
    say(f"timeline: {picture}")
    if lost or doubled:
        say(f"FAILED: lost {lost[:10]}, doubled {doubled[:10]}")
        return 1
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("--port", type=int, help="port of broker 1; default: the first free block from 19092")
    parser.add_argument("--data", metavar="DIR", help="folder that is kept; default: a temporary one")
    parser.add_argument("--picture", type=Path, default=Path("demo.png"), help="where the timeline goes")
    return parser.parse_args()


def _free_port() -> int:
    for port in range(FIRST_PORT, LAST_PORT, STEP):
        ports = [number for node in ClusterLayout(port=port).nodes() for number in node.ports]
        if all(is_free(number) for number in ports):
            return port
    raise LaunchError("port", f"no free block of ports between {FIRST_PORT} and {LAST_PORT}; give --port")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LaunchError as problem:
        sys.exit(f"demo: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
