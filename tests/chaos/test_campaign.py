"""Tests of campaigns: an internal error in one run does not end the other runs, faults are drawn only if the cluster
was prepared for them, and each run can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from kraft.sim.chaos.clusters import host_faults
from kraft.sim.chaos.clusters.chaos_cluster import ChaosCluster
from kraft.sim.chaos.hosts.clocks import can_move_clocks
from kraft.sim.chaos.hosts.disks import can_mount
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.chaos.judge import UNKNOWN, VALID
from kraft.sim.chaos.run import campaign as campaigns
from kraft.sim.chaos.run.campaign import ChaosCampaign, ChaosCampaignSettings, ClusterChoice
from kraft.sim.chaos.scenarios.drawn_faults import MAY_LOSE_RECORDS, faults_of_run
from kraft.sim.chaos.scenarios.scenario import Scenario, ScenarioCluster
from kraft.sim.chaos.scenarios.scenario_file import read_scenario
from kraft.sim.chaos.targets import ChaosTarget, own_target
from kraft.sim.chaos.targets.own_target import OwnTarget
from tests.stages.kraft_command import Command

SEEDS = range(1, 40)
EVERYTHING = read_scenario("everything")


def campaign_of(
    tmp_path: Path, seeds: list[int], make: Callable[[Scenario, Path, Warden], ChaosTarget]
) -> ChaosCampaign:
    return ChaosCampaign(
        ChaosCampaignSettings(
            runs=[(Scenario(name="any", title="Any"), seed) for seed in seeds],
            clusters=[ClusterChoice(name="none", make=make)],
            out=tmp_path,
            command=lambda *_: "again",
            is_quiet=True,
        )
    )


def test_a_campaign_continues_after_a_run_with_an_internal_error_and_its_verdict_is_unknown(tmp_path: Path) -> None:
    def make(scenario: Scenario, folder: Path, warden: Warden) -> NoReturn:
        raise KeyError("clock")

    campaign = campaign_of(tmp_path, [1, 2], make)
    campaign.run()
    assert [(one.seed, one.verdict.verdict) for one in campaign.finished] == [(1, UNKNOWN), (2, UNKNOWN)]
    for one in campaign.finished:
        (reason,) = one.verdict.reasons
        assert "KeyError: 'clock'" in reason
        assert str(one.folder / "error.txt") in reason
        assert 'raise KeyError("clock")' in (one.folder / "error.txt").read_text()


def test_an_interrupt_ends_a_campaign(tmp_path: Path) -> None:
    def make(scenario: Scenario, folder: Path, warden: Warden) -> NoReturn:
        raise KeyboardInterrupt

    campaign = campaign_of(tmp_path, [1, 2], make)
    with pytest.raises(KeyboardInterrupt):
        campaign.run()
    assert len([*tmp_path.iterdir()]) == 1


# drawn faults


def drawn(target: OwnTarget) -> set[str]:
    return {one.fault.kind for seed in SEEDS for one in faults_of_run(EVERYTHING, target.cluster, seed)}


def test_clock_and_disk_faults_are_possible_only_if_the_cluster_was_prepared_for_them(tmp_path: Path) -> None:
    with Warden() as warden:
        bare = ChaosCluster(ScenarioCluster(), tmp_path, warden)
        prepared = ChaosCluster(ScenarioCluster(), tmp_path, warden, [host_faults.CLOCK])
    assert not {*host_faults.PREPARED_KINDS} & {*bare.fault_kinds}
    assert {*prepared.fault_kinds} - {*bare.fault_kinds} == {host_faults.CLOCK}


def test_drawn_faults_are_supported_by_this_machine_and_prepared(tmp_path: Path) -> None:
    with Warden() as warden:
        target = OwnTarget(EVERYTHING, tmp_path, warden)
    found = drawn(target)
    assert (host_faults.CLOCK in found) is (not can_move_clocks())
    assert (host_faults.FULL_DISK in found) is (not can_mount())
    assert not found & {*MAY_LOSE_RECORDS}
    assert found <= {*target.cluster.fault_kinds}
    hit = {
        one.fault.node
        for seed in SEEDS
        for one in faults_of_run(EVERYTHING, target.cluster, seed)
        if one.fault.kind == host_faults.FULL_DISK
    }
    assert hit <= {*target.cluster.broker_ids}, "who has no small disk is not hit"


def test_faults_that_this_machine_does_not_support_are_not_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_target, "can_move_clocks", lambda: "no libfaketime")
    monkeypatch.setattr(own_target, "can_mount", lambda: "not root")
    with Warden() as warden:
        target = OwnTarget(EVERYTHING, tmp_path, warden)
    assert not drawn(target) & {*host_faults.PREPARED_KINDS}


# the command that repeats a run


def test_the_repeat_command_of_a_campaign_run_has_the_same_file_and_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[ChaosCampaignSettings] = []

    class Noted:
        """A campaign that executes no run."""

        verdict = VALID

        def __init__(self, settings: ChaosCampaignSettings) -> None:
            found.append(settings)

        def run(self) -> None:
            """Do nothing."""

    monkeypatch.setattr(campaigns, "ChaosCampaign", Noted)
    path = tmp_path / "mine.toml"
    path.write_text(EVERYTHING.text)
    Command(tmp_path / "state").run("chaos", "campaign", path, "broker-crash", "--client", "kafka-python")
    (settings,) = found
    assert [settings.command(scenario, seed + 4, "pykraft") for scenario, seed in settings.runs] == [
        f"kraft chaos run {path} --seed 5 --client kafka-python",
        "kraft chaos run broker-crash --seed 5 --client kafka-python",
    ]
