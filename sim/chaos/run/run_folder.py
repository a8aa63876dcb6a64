"""RunFolder: the files of one run, all on one clock: ms since the clients started.

run.json         what was run: scenario, seed, client, cluster, versions, times, how to run it again
history.jsonl    every operation (see `history`)
faults.jsonl     every fault, with the affected nodes and its begin and end
samples.jsonl    the observer's samples of the cluster, ten times a second
output.jsonl     lines that the user's own application printed, if one ran
verdict.json     the verdict, with the evidence
report.html, report.png
nodes/           the nodes' logs
error.txt        traceback of a run that failed by itself
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from kraft.sim.chaos.history import HistoryEvent, read_history

FORMAT = 1
"""Version of the file format. It is increased when an older version of the code could not read the files."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRecord:
    """A fault of a run. `end_ms` None: it had not ended when the run ended. `missed`: why the fault was not carried
    out, as text; then it has no effect. `evidence`: names of the signs that show it (see ScenarioFault)."""

    kind: str
    text: str
    begin_ms: float
    end_ms: float | None
    nodes: tuple[int, ...] = ()
    """The affected nodes: for a link the source and target, for a partition of the network the nodes that are cut off.
    """
    role: str = ""
    """The role by which the node was chosen."""
    missed: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSample:
    """A partition as the broker with the newest leader epoch describes it. `leader` is -1 while there is none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSample:
    """The observer's view at one time. A query without an answer leaves its field at the default: no partitions,
    controller -1."""

    time_ms: float
    partitions: tuple[PartitionSample, ...] = ()
    controller: int = -1
    controller_epoch: int = -1
    voters: tuple[int, ...] = ()
    brokers: tuple[int, ...] = ()
    """Brokers that the cluster lists as alive."""
    running: tuple[int, ...] = ()
    """Nodes whose process runs and is not frozen."""
    facts: Mapping[str, float] = field(default_factory=dict)
    """Other measurements by name, for example "proxy bytes 1->2" or "free bytes 2"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLine:
    """A line that the user's application printed."""

    time_ms: float
    stream: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """Description of a run. `cluster` is pykraft, kafka or simulated, or the address of the user's cluster."""

    scenario: str
    title: str
    about: str
    text: str
    cluster: str
    client: str
    seed: int
    started_at: str
    """Start of the run, in UTC and ISO 8601 format."""
    duration_ms: float
    """Duration of the clients' work in ms, that is, the time when it ended."""
    healed_ms: float
    """Time when the last fault had ended and everything was healed."""
    end_ms: float
    """Time when the final reader had finished."""
    command: str
    """The command that repeats the run."""
    partitions: int = 0
    replicas: int = 0
    producers: int = 0
    """Number of producers in the scenario. This and the next fields count each kind of client; they are 0 if the user's
    program is the workload."""
    readers: int = 0
    group_members: int = 0
    topic_churn: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    """Name → version or size: pykraft or Apache Kafka, client, toxiproxy, Python, system, processors, memory."""
    allowed: tuple[str, ...] = ()
    must_find: tuple[str, ...] = ()
    gap_ms_max: int = 0
    notes: tuple[str, ...] = ()
    """Facts that a reader of the report must know, for example "--against: only the links of clients can be broken"."""
    trouble: tuple[str, ...] = ()
    """Reason why the run did not proceed as planned; the verdict is then unknown. Empty if there is none."""
    application: tuple[str, ...] = ()
    """The user's own program and its arguments, if one ran."""
    application_exit: int | None = None


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Reads and writes the files of a run; see the module."""

    path: Path

    @property
    def history(self) -> Path:
        return self.path / "history.jsonl"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def picture(self) -> Path:
        return self.path / "report.png"

    @property
    def error(self) -> Path:
        return self.path / "error.txt"

    @property
    def verdict(self) -> Path:
        return self.path / "verdict.json"

    def write_info(self, info: RunInfo) -> None:
        self._write("run.json", {"format": FORMAT, **asdict(info)})

    def read_info(self) -> RunInfo:
        """Read run.json. ValueError if this release cannot read its format."""
        row = json.loads((self.path / "run.json").read_text())
        if row.pop("format", None) != FORMAT:
            raise ValueError(f"{self.path / 'run.json'} is no run of format {FORMAT}, which this release reads")
        return _made(RunInfo, row)

    def write_rows(self, name: str, rows: Iterable[Any]) -> None:
        """Write a list of records, samples or lines to NAME.jsonl."""
        with (self.path / f"{name}.jsonl").open("w") as file:
            for row in rows:
                file.write(json.dumps(asdict(row), separators=(",", ":")) + "\n")

    def read_faults(self) -> list[FaultRecord]:
        return self._rows("faults", FaultRecord)

    def read_output(self) -> list[OutputLine]:
        return self._rows("output", OutputLine)

    def read_samples(self) -> list[ClusterSample]:
        found = self._rows("samples", ClusterSample)
        parts = (tuple(_made(PartitionSample, row) for row in sample.partitions) for sample in found)  # type: ignore[arg-type]
        return [
            ClusterSample(
                **{
                    **{item.name: getattr(sample, item.name) for item in fields(ClusterSample)},
                    "partitions": partitions,
                }
            )
            for sample, partitions in zip(found, parts, strict=True)
        ]

    def read_history(self) -> list[HistoryEvent]:
        return read_history(self.history)

    def _rows(self, name: str, kind: type[Row]) -> list[Row]:
        path = self.path / f"{name}.jsonl"
        if not path.exists():
            return []
        return [_made(kind, json.loads(line)) for line in path.read_text().splitlines()]

    def _write(self, name: str, value: Any) -> None:
        (self.path / name).write_text(json.dumps(value, indent=1) + "\n")


def _made(kind: type[Row], row: Mapping[str, Any]) -> Row:
    return kind(**{name: tuple(_tupled(value)) if isinstance(value, list) else value for name, value in row.items()})


def _tupled(values: list[Any]) -> Iterable[Any]:
    return (tuple(value) if isinstance(value, list) else value for value in values)
