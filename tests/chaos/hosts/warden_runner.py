"""A program that registers one resource of each kind with a warden, prints them, and then exits, raises, or waits to be
killed.

`python warden_runner.py FOLDER WORD exit|exception|wait`: WORD makes its names of namespaces unique.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from kraft.sim.chaos.hosts.warden import Warden

PARENT = "import signal, subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); signal.pause()"


def main(folder: Path, word: str, ending: str) -> None:
    with Warden() as warden:
        warden.folder(folder)
        folder.mkdir()
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_text("text")
        frozen = subprocess.Popen(["sleep", "600"], start_new_session=True)
        warden.process(frozen.pid)
        os.kill(frozen.pid, signal.SIGSTOP)
        pipe = subprocess.PIPE
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT], stdin=pipe, stdout=pipe, start_new_session=True, text=True
        )
        warden.process(parent.pid)
        assert parent.stdout is not None
        pids = [frozen.pid, parent.pid, int(parent.stdout.readline())]
        environment = {**os.environ, **warden.environment}
        marked = subprocess.Popen(["sleep", "600"], start_new_session=True, env=environment)
        pids.append(marked.pid)
        loose = folder.with_name(folder.name + ".file")
        warden.file(loose)
        loose.write_text("text")
        if word:
            pids.append(make_privileged(warden, folder, word))
        print(json.dumps({"pids": pids, "warden": warden.pid}), flush=True)
        if ending == "exception":
            raise RuntimeError("the run fails")
        if ending == "wait":
            sys.stdin.read()


def make_privileged(warden: Warden, folder: Path, word: str) -> int:
    """Create the resources that need root: a busy mount, and a namespace with a process and an end of a veth pair."""
    disk = folder / "disk"
    disk.mkdir()
    warden.mount(disk)
    if ctypes.CDLL(None).mount(b"tmpfs", os.fsencode(disk), b"tmpfs", 0, b"size=1m"):
        raise OSError("cannot mount")
    warden.namespace(word)
    subprocess.run(["ip", "netns", "add", word], check=True)
    warden.link(word + "b")
    subprocess.run(["ip", "link", "add", word + "b", "type", "bridge"], check=True)
    command = ["ip", "netns", "exec", word, "sh", "-c", "echo inside; exec sleep 600"]
    inside = subprocess.Popen(command, cwd=disk, stdout=subprocess.PIPE, start_new_session=True)
    assert inside.stdout is not None
    inside.stdout.readline()
    return inside.pid


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
