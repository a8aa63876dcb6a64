"""`python -m tests.fuzz`: see the package."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
from pathlib import Path

from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster
from tests.fuzz.cluster_run import fuzz_cluster

SHOWN_MAX = 30


def keep_logs(folder: Path, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*/node.log"):
        shutil.copyfile(log, into / f"{log.parent.name}.log")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Random requests against 3 + 3 nodes.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--logs", type=Path, help="keep the nodes' logs in this folder")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with KafkaCluster(controllers=3, brokers=3) as cluster:
        findings = fuzz_cluster(cluster, arguments.seed, arguments.seconds)
        if arguments.logs is not None:
            keep_logs(cluster.folder, arguments.logs)
    for what, count in sorted(findings.counts.items()):
        print(f"{count:8} {what}")
    print(f"the witness sent {findings.witness_sent} records, the longest gap was {findings.witness_gap_s:.1f} s")
    print(f"nodes that ended: {findings.ended or 'none'}; alarms in logs: {len(findings.alarms)}")
    for line in findings.alarms[:SHOWN_MAX]:
        print(line[:500])
    return 0 if findings.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
