"""ClusterFolder: where a local cluster keeps its things.

`DIR/cluster.json` describes the cluster and carries the version of this format; `DIR/NODE/` holds `server.properties`,
`data/`, `node.log`, `pid` (the number alone) and `process.json` (the number with the start time that proves it ours).
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from kraft.deploy.launch.edited_properties import merge_edits
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.layout import ClusterLayout, NodePlan
from kraft.deploy.launch.processes import read_identity

FORMAT_VERSION = 1
FOLDERS_MAX = 50
"""How many clusters are remembered."""


ADMIN_ADDRESS = "admin.address"
"""In a node's folder while it runs: where its admin listener is bound."""


class ClusterFolder:
    """The paths of one cluster, and its description. `path` is absolute, with no symbolic link in it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().resolve()

    @property
    def description(self) -> Path:
        return self.path / "cluster.json"

    @property
    def zygote_log(self) -> Path:
        return self.path / "zygote.log"

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    @property
    def zygote_identity(self) -> Path:
        return self.path / "zygote.json"

    @property
    def socket(self) -> Path:
        """The launcher's control socket: in the folder, so that every login finds it. See `short_path`."""
        return self.path / "control.sock"

    @property
    def runs(self) -> bool:
        """Whether any node of it runs, as far as the folder tells."""
        try:
            nodes = [entry for entry in self.path.iterdir() if entry.name.isdigit()]
        except OSError:
            return False
        return any(identity.is_alive for node in nodes if (identity := read_identity(node)) is not None)

    @property
    def start_command(self) -> str:
        """What starts it when it is down."""
        return f"kraft up --background --data {self.path}"

    def write_admin_address(self, node_id: int, address: str) -> None:
        """Note where the node's admin listener is bound."""
        _write_atomic(self.node(node_id) / ADMIN_ADDRESS, address + "\n")

    def clear_admin_address(self, node_id: int) -> None:
        """The node has ended."""
        (self.node(node_id) / ADMIN_ADDRESS).unlink(missing_ok=True)

    def admin_address(self, node_id: int) -> str:
        """HOST:PORT of the node's admin listener; empty if it has none, or does not run."""
        try:
            return (self.node(node_id) / ADMIN_ADDRESS).read_text().strip()
        except OSError:
            return ""

    def node(self, node_id: int) -> Path:
        return self.path / str(node_id)

    def exists(self) -> bool:
        """Whether it holds a cluster. LaunchError if this user may not look."""
        try:
            return self.description.is_file()
        except PermissionError:
            raise self._not_ours() from None

    def _not_ours(self) -> LaunchError:
        return LaunchError("not-ours", f"{self.path} is closed to this user; act on it as its owner or as root")

    def create(self, layout: ClusterLayout, cluster_id: str) -> tuple[str, ...]:
        """Make or update the folder for this layout; what was edited in a node's `server.properties` stays. Returns a
        notice for each node with an edit that cannot stay. LaunchError if the folder holds something else."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            foreign = not self.exists() and any(entry.name != ".lock" for entry in self.path.iterdir())
        except OSError as problem:
            raise LaunchError("folder", f"cannot use the folder {self.path}: {problem.strerror}") from None
        if foreign:
            raise LaunchError("folder", f"{self.path} is not empty and holds no kraft cluster; choose another --data")
        before = self._written_before()
        wanted = {node.node_id: layout.properties(node, str(self.node(node.node_id))) for node in layout.nodes()}
        described = {"format": FORMAT_VERSION, "cluster_id": cluster_id, "layout": asdict(layout), "written": wanted}
        try:
            notices = [self._write_properties(node, before.get(node, {}), wanted[node]) for node in wanted]
            _write_atomic(self.description, json.dumps(described, indent=2) + "\n")
        except OSError as problem:
            raise LaunchError("folder", f"cannot write below {self.path}: {problem.strerror}") from None
        return tuple(notice for notice in notices if notice)

    def _written_before(self) -> dict[int, dict[str, str]]:
        """Node → the properties that the last start wrote; those of its layout if it did not note them."""
        if not self.exists():
            return {}
        layout, _ = self.read()
        noted = json.loads(self.description.read_text()).get("written", {})
        return {
            node.node_id: noted.get(str(node.node_id)) or layout.properties(node, str(self.node(node.node_id)))
            for node in layout.nodes()
        }

    def _write_properties(self, node_id: int, before: Mapping[str, str], wanted: Mapping[str, str]) -> str:
        """Write one node's file, if it says something else. A notice, or nothing."""
        from kraft.config import ConfigError
        from kraft.config.properties import parse_properties, render_properties

        folder = self.node(node_id)
        folder.mkdir(exist_ok=True)
        file = folder / "server.properties"
        try:
            found = parse_properties(file.read_text(encoding="utf-8")) if file.exists() else None
        except (ConfigError, UnicodeDecodeError) as problem:
            raise LaunchError("folder", f"{file}: {problem}; mend or remove the file") from None
        merged = merge_edits(before, before if found is None else found, wanted)
        if merged.properties != found:
            _write_atomic(file, render_properties(merged.properties, comment="Written by `kraft up`."))
        return f"{file}: these edits do not stay: {', '.join(merged.overruled)}" if merged.overruled else ""

    def read(self) -> tuple[ClusterLayout, str]:
        """The layout and the cluster id. LaunchError if there is none, or a newer release wrote it."""
        try:
            described = json.loads(self.description.read_text())
            version = described["format"]
            if version != FORMAT_VERSION:
                raise LaunchError(
                    "folder",
                    f"{self.description} has format {version}, but this release reads format {FORMAT_VERSION}; "
                    "use the release that wrote it",
                )
            return ClusterLayout(**described["layout"]), described["cluster_id"]
        except PermissionError:
            raise self._not_ours() from None
        except OSError:
            raise LaunchError(
                "no-cluster", f"{self.path} holds no kraft cluster; start one with kraft up --data {self.path}"
            ) from None
        except (ValueError, KeyError, TypeError) as problem:
            what = f"has no {problem}" if isinstance(problem, KeyError) else f"is damaged: {problem}"
            raise LaunchError(
                "folder", f"{self.description} {what}; nodes need it not, but kraft up does: choose another --data"
            ) from None

    def plan(self, node_id: int) -> NodePlan:
        """The plan of one node. LaunchError names the nodes there are."""
        nodes = self.read()[0].nodes()
        for node in nodes:
            if node.node_id == node_id:
                return node
        known = ", ".join(str(node.node_id) for node in nodes)
        raise LaunchError("unknown-node", f"there is no node {node_id} in {self.path}; there are {known}")


def state_directory() -> Path:
    """Where this user's state lives: $XDG_STATE_HOME/kraft. OSError for a user without a home."""
    base = os.environ.get("XDG_STATE_HOME")
    if base:
        return Path(base) / "kraft"
    try:
        return Path.home() / ".local" / "state" / "kraft"
    except RuntimeError as problem:
        raise FileNotFoundError(errno.ENOENT, str(problem)) from None


def remember_last(folder: ClusterFolder) -> None:
    """Make this the cluster that was started last. A home that cannot be written is no reason to stop."""
    paths = [folder.path, *(known.path for known in started_folders() if known.path != folder.path)]
    try:
        state_directory().mkdir(parents=True, exist_ok=True)
        _write_atomic(state_directory() / "last", "".join(f"{path}\n" for path in paths[:FOLDERS_MAX]))
    except OSError:
        return


def started_folders() -> list[ClusterFolder]:
    """The clusters that this user has started and that are still there, the last one first."""
    try:
        paths = (state_directory() / "last").read_text().splitlines()
    except OSError:
        return []
    return [folder for folder in map(ClusterFolder, paths) if os.path.isfile(folder.description)]


def last_folder() -> ClusterFolder:
    """The cluster that verbs without --data act on: of those that run the one started last; if none runs, the one
    started last. LaunchError if there is none."""
    known = started_folders()
    for folder in known:
        if folder.runs:
            return folder
    if known:
        return known[0]
    raise LaunchError(
        "no-cluster", "no cluster was started yet by this user; start one with kraft up, or give --data DIR"
    )


def _write_atomic(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    temporary.replace(path)
