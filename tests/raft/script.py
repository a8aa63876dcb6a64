"""Scenario scripts: each command is one input to a core, and the output lists all effects. The output is reviewed as a
diff.

A script is blocks of `command`, `----`, output, and an empty line. `REWRITE_SCENARIOS=1` rewrites the output.

    start voters=1,2,3 epoch=3 leader=2 log=1:0,3:10 end=20     a replica as it is found on disk; it is node 1
    vote|pre-vote from=2 epoch=6 last=3:20                      requests of other nodes
    begin|end from=2 epoch=6 [successors=1,3]
    fetch from=2 offset=5 last=1 [hw=4] [wait=0] ; fetch-snapshot from=2 id=8@1 [position=0]
    answer vote|fetch|chunk|begin|end from=2 field=value …      responses of that node to the core's requests
    fail vote|fetch|chunk|begin|end from=2 refused|closed|timed-out
    tick +20 ; deadline ; append 3 ; sync ; pass ; shutdown ; voters 1,2,3 ; closed 2 ; redialled 2 refused
    installed 50@3 ; wrote 5@1 ; trimmed 5
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from kraft.raft.inputs import (
    ConnectionEnded,
    Failure,
    LogTrimmed,
    PassEnded,
    Redialled,
    RequestFailed,
    ResponseReceived,
    ShutdownRequested,
    SnapshotInstalled,
    SnapshotWritten,
    VotersChangeRequested,
)
from kraft.raft.log_view import BatchSummary, SnapshotId
from kraft.raft.ready import QuorumState, Ready, Send
from kraft.wire.rpc.quorum_messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    MetadataFetchRequest,
    MetadataFetchResponse,
    VoteRequest,
    VoteResponse,
)
from tests.stages.single_core import CLUSTER, ME, Single, directory, key, voter_set

KINDS: dict[str, tuple[type[Any], type[Any]]] = {
    "vote": (VoteRequest, VoteResponse),
    "fetch": (MetadataFetchRequest, MetadataFetchResponse),
    "chunk": (FetchSnapshotRequest, FetchSnapshotResponse),
    "begin": (BeginQuorumEpochRequest, BeginQuorumEpochResponse),
    "end": (EndQuorumEpochRequest, EndQuorumEpochResponse),
}
SHORT = {"leader": "leader_id", "hw": "high_watermark", "granted": "vote_granted", "error": "error_code"}
HIDDEN = {"cluster_id", "token", "timeout_ms", "leader_host", "leader_port", "voter_id", "replica_directory_id"}
HIDDEN |= {"voter_directory_id", "candidate_directory_id", "max_wait_ms", "max_bytes", "log_start_offset", "purpose"}
HIDDEN |= {"candidate_id", "replica_id", "content"}
FAILURES = {"refused": Failure.REFUSED, "closed": Failure.CLOSED, "timed-out": Failure.TIMED_OUT}


class Script:
    def __init__(self) -> None:
        self._single: Single | None = None
        self._sent: dict[tuple[str, int], Send] = {}

    @property
    def single(self) -> Single:
        assert self._single is not None, "a script begins with start"
        return self._single

    def run(self, line: str) -> str:
        """Carry out one command; return its effects, one per line."""
        name, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        getattr(self, "do_" + name.replace("-", "_"))(options, plain)
        single = self.single
        for send in single.last.sends:
            kind = next(kind for kind, (request, _) in KINDS.items() if isinstance(send.request, request))
            self._sent[(kind, send.destination.node_id)] = send
        return "\n".join([*describe(single.last, single.now), self._status()])

    def _status(self) -> str:
        raft = self.single.raft
        role = type(raft.role).__name__
        known = f"epoch={raft.epoch} leader={raft.leader_id} log={raft.log.start_offset}..{raft.log.end_offset}"
        return f"= {role} {known} synced={raft.log.synced_end_offset} hw={raft.high_watermark}"

    def do_start(self, options: dict[str, str], plain: list[str]) -> None:
        leader = options.get("leader")
        voted = options.get("voted")
        stored = QuorumState(
            int(options.get("epoch", 0)), int(leader) if leader else None, key(int(voted)) if voted else None
        )
        epochs = (
            tuple((int(e), int(s)) for e, s in (pair.split(":") for pair in options["log"].split(",")))
            if "log" in options
            else ()
        )
        self._single = Single(
            voters=_voters(options["voters"]),
            stored=stored,
            epochs=epochs,
            end_offset=int(options.get("end", 0)),
            may_vote="observer" not in plain,
            me=int(options.get("me", ME)),
        )

    def _vote(self, options: dict[str, str], *, pre_vote: bool) -> None:
        last_epoch, offset = options["last"].split(":")
        self.single.vote_of(
            int(options["from"]), int(options["epoch"]), int(last_epoch), int(offset), pre_vote=pre_vote
        )

    def do_vote(self, options: dict[str, str], plain: list[str]) -> None:
        self._vote(options, pre_vote=False)

    def do_pre_vote(self, options: dict[str, str], plain: list[str]) -> None:
        self._vote(options, pre_vote=True)

    def do_begin(self, options: dict[str, str], plain: list[str]) -> None:
        self.single.follow(int(options["from"]), int(options["epoch"]))

    def do_end(self, options: dict[str, str], plain: list[str]) -> None:
        successors = tuple(int(n) for n in options.get("successors", "").split(",") if n)
        self.single.ask(
            EndQuorumEpochRequest(
                cluster_id=CLUSTER,
                epoch=int(options["epoch"]),
                leader_id=int(options["from"]),
                preferred_successors=successors,
            )
        )

    def do_fetch(self, options: dict[str, str], plain: list[str]) -> None:
        self.single.fetch_of(
            int(options["from"]),
            int(options["offset"]),
            int(options["last"]),
            epoch=int(options.get("epoch", self.single.raft.epoch)),
            high_watermark=int(options.get("hw", -1)),
            max_wait_ms=int(options.get("wait", 500)),
        )

    def do_fetch_snapshot(self, options: dict[str, str], plain: list[str]) -> None:
        snapshot = _snapshot(options["id"])
        node_id = int(options["from"])
        self.single.ask(
            FetchSnapshotRequest(
                cluster_id=CLUSTER,
                replica_id=node_id,
                replica_directory_id=directory(node_id),
                epoch=self.single.raft.epoch,
                snapshot_end_offset=snapshot.end_offset,
                snapshot_epoch=snapshot.epoch,
                position=int(options.get("position", 0)),
                max_bytes=100,
            )
        )

    def do_answer(self, options: dict[str, str], plain: list[str]) -> None:
        kind = plain[0]
        send = self._sent.pop((kind, int(options.pop("from"))))
        batches = tuple(_batch(text) for text in options.pop("batches", "").split(",") if text)
        fields: dict[str, Any] = {
            SHORT.get(name, name): int(value) for name, value in options.items() if name != "data"
        }
        fields |= {SHORT.get(word, word): True for word in plain[1:]}
        fields.setdefault("epoch", self.single.raft.epoch)
        if "data" in options:
            fields["data"] = options["data"].encode()
        if batches:
            fields["records"] = b"..."
        self.single.step(ResponseReceived(send.request_id, KINDS[kind][1](**fields), batches))

    def do_fail(self, options: dict[str, str], plain: list[str]) -> None:
        send = self._sent.pop((plain[0], int(options["from"])))
        self.single.step(RequestFailed(send.request_id, FAILURES[plain[1]]))

    def do_tick(self, options: dict[str, str], plain: list[str]) -> None:
        self.single.tick(int(plain[0]))

    def do_deadline(self, options: dict[str, str], plain: list[str]) -> None:
        self.single.tick_to_deadline()

    def do_append(self, options: dict[str, str], plain: list[str]) -> None:
        self.single.append(int(plain[0]))

    def do_sync(self, options: dict[str, str], plain: list[str]) -> None:
        self.single.sync()

    def do_pass(self, options: dict[str, str], plain: list[str]) -> None:
        self.single.step(PassEnded())

    def do_shutdown(self, options: dict[str, str], plain: list[str]) -> None:
        self.single.step(ShutdownRequested())

    def do_voters(self, options: dict[str, str], plain: list[str]) -> None:
        self.single.step(VotersChangeRequested(_voters(plain[0])))

    def do_closed(self, options: dict[str, str], plain: list[str]) -> None:
        self.single.step(ConnectionEnded(int(plain[0])))

    def do_redialled(self, options: dict[str, str], plain: list[str]) -> None:
        self.single.step(Redialled(int(plain[0]), FAILURES.get(plain[1])))

    def do_installed(self, options: dict[str, str], plain: list[str]) -> None:
        self.single.step(SnapshotInstalled(_snapshot(plain[0]), None))

    def do_wrote(self, options: dict[str, str], plain: list[str]) -> None:
        self.single.step(SnapshotWritten(_snapshot(plain[0])))

    def do_trimmed(self, options: dict[str, str], plain: list[str]) -> None:
        self.single.step(LogTrimmed(int(plain[0])))


def _voters(text: str) -> Any:
    return voter_set(*(int(n) for n in text.split(",")))


def _snapshot(text: str) -> SnapshotId:
    end_offset, epoch = text.split("@")
    return SnapshotId(int(end_offset), int(epoch))


def _batch(text: str) -> BatchSummary:
    bounds, epoch = text.split("@")
    base, end = bounds.split("-")
    return BatchSummary(int(base), int(end), int(epoch))


def describe(ready: Ready, now_ms: int) -> list[str]:
    """Return each effect in the Ready as text, in order."""
    lines = []
    if ready.quorum_state is not None:
        state = ready.quorum_state
        voted = None if state.voted is None else state.voted.node_id
        lines.append(f"write epoch={state.epoch} leader={state.leader_id} voted={voted}")
    lines += [f"log {short(action)}" for action in ready.log]
    if ready.discard_download:
        lines.append("discard the download")
    if ready.chunk is not None:
        lines.append(f"keep {short(ready.chunk)}")
    for answer in ready.answers:
        extra = (
            "" if type(answer).__name__ == "Reply" else f" {type(answer).__name__}({fields_of(answer, ('response',))})"
        )
        lines.append(f"answer {short(answer.response)}{extra}")
    lines += [f"send to {send.destination.node_id}: {short(send.request)}" for send in ready.sends]
    if ready.redial is not None:
        lines.append(f"redial {ready.redial.node_id}")
    if ready.leadership is not None:
        lines.append(f"tell {short(ready.leadership)}")
    if ready.high_watermark is not None:
        lines.append(f"commit {ready.high_watermark}")
    lines += [f"refuse: {ready.refusal}"] if ready.refusal else []
    wishes = [name for name in ("sync_wanted", "pass_wanted", "may_stop") if getattr(ready, name)]
    lines += [" ".join(wishes)] if wishes else []
    if ready.deadline_ms is not None:
        lines.append(f"deadline +{ready.deadline_ms - now_ms}")
    return lines


def short(value: Any) -> str:
    return f"{type(value).__name__}({fields_of(value)})"


def fields_of(value: Any, hidden: tuple[str, ...] = ()) -> str:
    """Return the fields that differ from their defaults."""
    shown = []
    for name, default in _defaults(value).items():
        item = getattr(value, name)
        if name in HIDDEN or name in hidden or item == default:
            continue
        shown.append(f"{name}={_text(item)}")
    return " ".join(shown)


def _defaults(value: Any) -> dict[str, Any]:
    """Return the fields of an input or output of the core with their default values; most of these are named tuples."""
    if dataclasses.is_dataclass(value):
        return {field.name: field.default for field in dataclasses.fields(value)}
    return dict.fromkeys(value._fields, dataclasses.MISSING) | value._field_defaults


def _text(item: Any) -> str:
    if isinstance(item, SnapshotId):
        return f"{item.end_offset}@{item.epoch}"
    if isinstance(item, tuple):
        return "[" + " ".join(_text(part) for part in item) + "]"
    if isinstance(item, BatchSummary):
        return f"{item.base_offset}-{item.next_offset}@{item.epoch}"
    if hasattr(item, "ids"):
        return ",".join(str(n) for n in item.ids)
    if hasattr(item, "name") and hasattr(item, "value"):
        return str(item.name)
    return str(item.decode() if isinstance(item, bytes) else item)


def play(path: Path) -> str:
    """Run the script; return it with its actual output."""
    script = Script()
    parts = []
    for block in path.read_text().strip().split("\n\n"):
        lines = block.split("\n")
        commands = lines[: lines.index("----")] if "----" in lines else lines
        if all(line.startswith("#") for line in commands):
            parts.append("\n".join(commands))
            continue
        output = [script.run(line) for line in commands if not line.startswith("#")]
        parts.append("\n".join([*commands, "----", *output]))
    return "\n\n".join(parts) + "\n"
