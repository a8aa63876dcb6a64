"""Tests that verdicts can be trusted: planted bugs make runs of real processes invalid, and runs that prove nothing get
an unknown verdict.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout
from kraft.deploy.launch.node_command import NodeCommand
from kraft.sim.chaos.clusters.chaos_cluster import ChaosCluster
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.chaos.judge import INVALID, UNKNOWN, VALID
from kraft.sim.chaos.judge.verdict import LOG_LOSSES, decide_verdict
from kraft.sim.chaos.proxies.links import LinkProxies
from kraft.sim.chaos.run import work
from kraft.sim.chaos.run.campaign import ChaosCampaign, ChaosCampaignSettings, ClusterChoice, FinishedRun
from kraft.sim.chaos.run.run_folder import RunFolder
from kraft.sim.chaos.scenarios.scenario import Scenario
from kraft.sim.chaos.scenarios.scenario_file import parse_scenario, read_scenario
from kraft.sim.chaos.targets.own_target import OwnTarget

ACKNOWLEDGED_BY_THE_LEADER_ALONE = """
from kraft.broker.api.produce import general_produce, handle_produce
# no request has these acks, and a request that waits for no follower is answered after the append
general_produce.ACKS_ALL = handle_produce.ACKS_ALL = None
"""
LEADER_LOST_BEHIND_A_CUT = """
title = "A leader dies while its followers cannot fetch from it"
duration_s = 8
[workload]
rate = 100
[[fault]]
at_s = 2
kind = "cut"
node = 1
other = 2
lasts_s = 4
[[fault]]
at_s = 2
kind = "cut"
node = 1
other = 3
lasts_s = 4
[[fault]]
at_s = 4
kind = "kill"
node = 1
back_s = 2
"""
ONE_KILL = """
title = "One kill"
duration_s = 6
[workload]
producers = 1
[[fault]]
at_s = 1
kind = "kill"
node = 2
back_s = 0.5
"""
A_KILL_OF_A_NODE_THAT_IS_DOWN = """
title = "A node is killed twice"
duration_s = 6
[workload]
producers = 1
[[fault]]
at_s = 1
kind = "kill"
node = 3
back_s = 2
[[fault]]
at_s = 2
kind = "kill"
node = 3
back_s = 1
"""
A_CUT = """
title = "A cut"
duration_s = 7
[workload]
producers = 1
[[fault]]
at_s = 1
kind = "cut"
node = 1
other = 2
lasts_s = 3
"""
NO_CLIENTS = """
title = "No clients"
duration_s = 1
[workload]
producers = 0
readers = 0
"""

Cluster = type[ChaosCluster]


class TargetOf(OwnTarget):
    """A target of a run that uses the given class of cluster."""

    def __init__(self, scenario: Scenario, folder: Path, warden: Warden, kind: Cluster) -> None:
        super().__init__(scenario, folder, warden)
        self.cluster = kind(scenario.cluster, folder, warden, {one.fault.kind for one in scenario.faults})


def run(tmp_path: Path, scenario: Scenario | str, cluster: Cluster = ChaosCluster) -> FinishedRun:
    """Execute one run of a scenario, as `kraft chaos run` does."""
    chosen = parse_scenario(scenario, "short") if isinstance(scenario, str) else scenario
    choice = ClusterChoice(
        name="pykraft", make=lambda scenario, folder, warden: TargetOf(scenario, folder, warden, cluster)
    )
    settings = ChaosCampaignSettings(
        runs=[(chosen, 1)], clusters=[choice], out=tmp_path / "runs", command=lambda *_: "again", is_quiet=True
    )
    campaign = ChaosCampaign(settings)
    # not processes of other tests, such as a resource tracker of multiprocessing
    before = psutil.Process().children(recursive=True)
    campaign.run()
    assert set(psutil.Process().children(recursive=True)) <= set(before), "nothing is left"
    (finished,) = campaign.finished
    return finished


def losses(finished: FinishedRun) -> set[str]:
    return {one.name for one in finished.verdict.anomalies if not one.is_allowed}.intersection(LOG_LOSSES)


def with_plant(folder_of_plant: Path, plant: str) -> Cluster:
    """Return a class of cluster whose brokers execute this planted code before they start."""
    folder_of_plant.mkdir()
    (folder_of_plant / "sitecustomize.py").write_text(plant)

    class Planted(ChaosCluster):
        def _before_start(self, folder: ClusterFolder, layout: ClusterLayout) -> None:
            super()._before_start(folder, layout)
            for node in self.broker_ids:
                NodeCommand(environment={"PYTHONPATH": str(folder_of_plant)}).write(folder.node(node))

    return Planted


# planted bugs


@pytest.mark.slow
def test_checks_catch_a_broker_that_acknowledges_before_replication(tmp_path: Path) -> None:
    cluster = with_plant(tmp_path / "plant", ACKNOWLEDGED_BY_THE_LEADER_ALONE)
    finished = run(tmp_path, LEADER_LOST_BEHIND_A_CUT, cluster)
    assert finished.verdict.verdict == INVALID, finished.verdict
    assert losses(finished)


@pytest.mark.slow
def test_a_run_with_planted_code_that_changes_nothing_is_valid(tmp_path: Path) -> None:
    finished = run(tmp_path, LEADER_LOST_BEHIND_A_CUT, with_plant(tmp_path / "plant", "import sys\n"))
    assert finished.verdict.verdict == VALID, finished.verdict


@pytest.mark.slow
def test_losses_by_acks_1_and_unclean_elections_are_invalid_unless_allowed(tmp_path: Path) -> None:
    settings_permit = read_scenario("unclean-election-on")
    text, _, rest = settings_permit.text.partition("[expects]")
    own = f'{text}[workload]\nacks = "1"\n{rest[rest.index("[[fault]]") :]}'
    finished = run(tmp_path, own)
    assert finished.verdict.verdict == INVALID, finished.verdict
    assert losses(finished)

    folder = RunFolder(finished.folder)
    allowed = replace(folder.read_info(), allowed=settings_permit.expects.allowed)
    again = decide_verdict(allowed, folder.read_history(), folder.read_faults(), folder.read_samples())
    assert again.verdict == VALID, again
    assert again.anomalies
    assert all(one.is_allowed for one in again.anomalies)


# runs that prove nothing


@pytest.mark.slow
def test_a_kill_of_a_node_that_is_already_down_makes_the_verdict_unknown(tmp_path: Path) -> None:
    finished = run(tmp_path, A_KILL_OF_A_NODE_THAT_IS_DOWN)
    assert finished.verdict.verdict == UNKNOWN
    (reason,) = finished.verdict.reasons
    assert "Fault 2 (kill" in reason
    assert "it did not happen: there was no node 3 running" in reason


@pytest.mark.slow
def test_a_cut_that_the_proxies_do_not_apply_makes_the_verdict_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinkProxies, "apply", lambda *_: None)
    finished = run(tmp_path, A_CUT)
    assert finished.verdict.verdict == UNKNOWN
    (reason,) = finished.verdict.reasons
    assert "Fault 1 (node 1 is cut off from [2]" in reason
    assert "is not seen to have taken effect" in reason


def test_a_run_without_clients_has_an_unknown_verdict(tmp_path: Path) -> None:
    finished = run(tmp_path, NO_CLIENTS)
    assert (finished.verdict.verdict, finished.verdict.reasons) == (UNKNOWN, ("No client had any operation.",))


class WithoutProxies(ChaosCluster):
    """A cluster whose toxiproxy ends at the moment when a node is to be killed."""

    def _kill(self, node: int) -> None:
        os.kill(self.proxy_pid, signal.SIGKILL)
        super()._kill(node)


def test_a_run_whose_toxiproxy_ends_has_an_unknown_verdict_and_leaves_nothing_behind(tmp_path: Path) -> None:
    finished = run(tmp_path, ONE_KILL, WithoutProxies)
    assert finished.verdict.verdict == UNKNOWN
    assert any("toxiproxy (pid " in reason and "ended with code -9" in reason for reason in finished.verdict.reasons)
    assert finished.verdict.anomalies == ()
    assert RunFolder(finished.folder).report.exists()


@pytest.mark.slow
def test_a_run_whose_final_reader_does_not_reach_the_end_has_an_unknown_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "FINAL_READ_SECONDS_MAX", 0.0)
    finished = run(tmp_path, ONE_KILL)
    assert finished.verdict.verdict == UNKNOWN
    assert "The final reader did not reach the end of every partition." in finished.verdict.reasons
    assert finished.verdict.anomalies == ()


def test_a_resource_that_cannot_be_cleaned_up_makes_the_verdict_unknown(tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    class Untidy(ChaosCluster):
        """A cluster that registers a folder with the warden and then replaces it, so that the warden cannot remove
        it."""

        def open(self) -> None:
            kept.mkdir()
            self._warden.folder(kept)
            kept.rename(tmp_path / "moved")
            kept.mkdir()
            super().open()

    finished = run(tmp_path, NO_CLIENTS, Untidy)
    assert finished.verdict.verdict == UNKNOWN
    assert any(str(kept) in reason for reason in finished.verdict.reasons)
    assert kept.is_dir()
