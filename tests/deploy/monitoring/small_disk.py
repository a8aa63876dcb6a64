"""A small file system watched by a real node_exporter, as if it contained a machine's log directories."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.monitoring.observed import tool

SIZE_BYTES = 20 << 20
CLAIM = "data-a-kraft-broker-0"


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A small mounted disk. `root` is its path outside of its namespace. `texts` are files with further series for the
    exporter."""

    root: Path
    texts: Path

    @staticmethod
    @contextmanager
    def mounted(folder: Path, port: int) -> Iterator[SmallDisk]:
        """Mount a tmpfs in a namespace that ends with the exporter. The exporter ignores file systems in memory, so the
        list of mounts that it reads gives ext4 as the type. The sizes that it reports are those of the tmpfs."""
        place, texts, processes = folder / "mount", folder / "texts", folder / "proc" / "1"
        for made in (place, texts, processes):
            made.mkdir(parents=True)
        (processes / "mounts").write_text(f"/dev/small {place} ext4 rw,relatime 0 0\n")
        options = f"--path.procfs={processes.parent} --collector.textfile.directory={texts}"
        collectors = "--collector.disable-defaults --collector.filesystem --collector.textfile"
        script = (
            f"mount -t tmpfs -o size={SIZE_BYTES} none {place} && exec {tool('NODE_EXPORTER')} {collectors} {options} "
            f"--web.listen-address=127.0.0.1:{port}"
        )
        with (folder / "log").open("wb") as log:
            exporter = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=log, stderr=log)
            try:
                disk = SmallDisk(Path(f"/proc/{exporter.pid}/root{place}"), texts)
                disk._say_of_volume(SIZE_BYTES)
                yield disk
            finally:
                exporter.terminate()
                exporter.wait(30)

    @contextmanager
    def fill(self) -> Iterator[None]:
        """Fill nine tenths of the disk until the context ends."""
        file = self.root / "segment"
        file.write_bytes(bytes(SIZE_BYTES * 9 // 10))
        try:
            yield
        finally:
            file.unlink()

    @contextmanager
    def tell_of_full_volume(self) -> Iterator[None]:
        """Export what a kubelet would report for a volume that is nearly full."""
        self._say_of_volume(SIZE_BYTES // 10)
        try:
            yield
        finally:
            self._say_of_volume(SIZE_BYTES)

    def _say_of_volume(self, available_bytes: int) -> None:
        draft = self.texts / "draft"
        draft.write_text(
            f'kubelet_volume_stats_available_bytes{{persistentvolumeclaim="{CLAIM}"}} {available_bytes}\n'
            f'kubelet_volume_stats_capacity_bytes{{persistentvolumeclaim="{CLAIM}"}} {SIZE_BYTES}\n'
        )
        os.replace(draft, self.texts / "volume.prom")
