"""ClusterFolder: the files of a local cluster.

`DIR/cluster.json` describes the cluster and has the version of this format. `DIR/NODE/` holds `server.properties`,
`data/`, `node.log`, `pid` (the number alone) and `process.json` (the number and start time, which identify the
process).
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
"""Maximum number of clusters that are remembered."""


ADMIN_ADDRESS = "admin.address"
"""File in the folder of a node that has the bound address of its admin listener while the node runs."""


class ClusterFolder:
    """Paths of the files of one cluster, and the description of the cluster. `path` is absolute, without symbolic
    links."""

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
        """Path of the launcher's control socket. It is in the folder, so that every login session finds it. For its
        length, see `short_path`."""
        return self.path / "control.sock"

    @property
    def runs(self) -> bool:
        """Whether any node of the cluster is running, according to the folder."""
        try:
            nodes = [entry for entry in self.path.iterdir() if entry.name.isdigit()]
        except OSError:
            return False
        return any(identity.is_alive for node in nodes if (identity := read_identity(node)) is not None)

    @property
    def start_command(self) -> str:
        """Command that starts the cluster when it is down."""
        return f"kraft up --background --data {self.path}"

    def write_admin_address(self, node_id: int, address: str) -> None:
        """Write the bound address of the node's admin listener to its file."""
        _write_atomic(self.node(node_id) / ADMIN_ADDRESS, address + "\n")

    def clear_admin_address(self, node_id: int) -> None:
        """Delete the address file of a node that has ended."""
        (self.node(node_id) / ADMIN_ADDRESS).unlink(missing_ok=True)

    def admin_address(self, node_id: int) -> str:
        """Return HOST:PORT of the node's admin listener; empty if it has none, or is not running."""
        try:
            return (self.node(node_id) / ADMIN_ADDRESS).read_text().strip()
        except OSError:
            return ""

    def node(self, node_id: int) -> Path:
        return self.path / str(node_id)

    def exists(self) -> bool:
        """Whether the folder holds a cluster. Raise LaunchError if this user may not read it."""
        try:
            return self.description.is_file()
        except PermissionError:
            raise self._not_ours() from None

    def _not_ours(self) -> LaunchError:
        return LaunchError("not-ours", f"{self.path} is closed to this user; act on it as its owner or as root")

    def create(self, layout: ClusterLayout, cluster_id: str) -> tuple[str, ...]:
        """Create or update the folder for this layout. A user's edits in a node's `server.properties` are kept. Return
        a notice for each node with an edit that cannot be kept. Raise LaunchError if the folder is not empty and has no
        cluster."""
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
        """Return the properties that the last start has written, by node. If they were not stored, they are computed
        from the layout of that start."""
        if not self.exists():
            return {}
        layout, _ = self.read()
        noted = json.loads(self.description.read_text()).get("written", {})
        return {
            node.node_id: noted.get(str(node.node_id)) or layout.properties(node, str(self.node(node.node_id)))
            for node in layout.nodes()
        }

    def _write_properties(self, node_id: int, before: Mapping[str, str], wanted: Mapping[str, str]) -> str:
        """Write one node's properties file if its content changes. Return a notice if an edit is dropped, else an empty
        text."""
        from kraft.config import ConfigError
        from kraft.config.properties import parse_properties, render_properties

        folder = self.node(node_id)
        folder.mkdir(exist_ok=True)
        file = folder / "server.properties"
        try:
            found = parse_properties(file.read_text(encoding="utf-8")) if file.exists() else None
        except (ConfigError, UnicodeDecodeError) as problem:
            raise LaunchError("folder", f"{file}: {problem}; fix or delete the file") from None
        merged = merge_edits(before, before if found is None else found, wanted)
        if merged.properties != found:
            _write_atomic(file, render_properties(merged.properties, comment="Written by `kraft up`."))
        return f"{file}: these edits are dropped: {', '.join(merged.overruled)}" if merged.overruled else ""

    def read(self) -> tuple[ClusterLayout, str]:
        """Return the layout and the cluster id. Raise LaunchError if the folder has no cluster, or one of a newer
        release."""
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
        """Return the plan of one node. If there is no such node, raise LaunchError that names the existing ones."""
        nodes = self.read()[0].nodes()
        for node in nodes:
            if node.node_id == node_id:
                return node
        known = ", ".join(str(node.node_id) for node in nodes)
        raise LaunchError("unknown-node", f"there is no node {node_id} in {self.path}; there are {known}")


def state_directory() -> Path:
    """Return the folder for this user's state: $XDG_STATE_HOME/kraft. Raise OSError for a user without a home
    folder."""
    base = os.environ.get("XDG_STATE_HOME")
    if base:
        return Path(base) / "kraft"
    try:
        return Path.home() / ".local" / "state" / "kraft"
    except RuntimeError as problem:
        raise FileNotFoundError(errno.ENOENT, str(problem)) from None


def remember_last(folder: ClusterFolder) -> None:
    """Record this cluster as the one started last. A home folder that is not writable is not an error."""
    paths = [folder.path, *(known.path for known in started_folders() if known.path != folder.path)]
    try:
        state_directory().mkdir(parents=True, exist_ok=True)
        _write_atomic(state_directory() / "last", "".join(f"{path}\n" for path in paths[:FOLDERS_MAX]))
    except OSError:
        return


def started_folders() -> list[ClusterFolder]:
    """Return the folders of the existing clusters that this user has started, the cluster started last first."""
    try:
        paths = (state_directory() / "last").read_text().splitlines()
    except OSError:
        return []
    return [folder for folder in map(ClusterFolder, paths) if os.path.isfile(folder.description)]


def last_folder() -> ClusterFolder:
    """Return the folder of the cluster on which commands without --data act. It is the running cluster that was started
    last; if none is running, the cluster that was started last. Raise LaunchError if there is no cluster."""
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
