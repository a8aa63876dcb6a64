"""Main program of the cleanup process (warden): reads the registered resources until the pipe ends, cleans them up, and
prints what it could not clean up.

It imports few modules, so that it is small, starts quickly, and imports nothing during the clean-up. Processes are
ended first, because they use the other resources. Then mounts are removed, because folders are below them, and then
namespaces, links, files and folders.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable

from kraft.deploy.launch.processes import ProcessIdentity, identify

KILL_SECONDS_MAX = 10.0
COMMAND_SECONDS_MAX = 10.0
FREEZE_SECONDS_MAX = 1.0
FREEZE_POLL_SECONDS = 0.001
BUSY_TRIES = 20
POLL_SECONDS = 0.02
MNT_DETACH = 2
NAMESPACES = "/run/netns"

Key = tuple[str, str, str]
"""Identity of a registered resource: kind, name and proof."""


def main() -> None:
    """Read registered resources until the pipe ends, then clean them up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    held: dict[Key, None] = {}
    for line in sys.stdin.buffer:
        try:
            told = json.loads(line)
        except ValueError:  # the runner was killed in the middle of a line
            continue
        key = (told["kind"], told["name"], told["proof"])
        if told["verb"] == "hold":
            held[key] = None
        else:
            held.pop(key, None)
    left = clean(held)
    try:
        print(json.dumps(left), flush=True)
    except OSError:  # the runner no longer reads it
        os._exit(0)


def clean(held: Iterable[Key]) -> list[str]:
    """Clean up these resources, the newest of each kind first. Return those that could not be cleaned up, with the
    reason."""
    newest_first = list(held)[::-1]
    left: list[str] = []

    def each(kind: str, remove: Callable[[str, str], str]) -> None:
        for name, proof in [key[1:] for key in newest_first if key[0] == kind]:
            try:
                why = remove(name, proof)
            except (OSError, subprocess.SubprocessError) as problem:
                why = str(problem)
            if why:
                left.append(f"{kind} {name}: {why}")

    known = [ProcessIdentity(int(name), proof) for kind, name, proof in newest_first if kind == "process"]
    kill_processes([*known, *marked({name for kind, name, _ in newest_first if kind == "mark"})], left)
    each("namespace", end_processes_inside)
    each("mount", unmount)
    each("namespace", lambda name, _: delete(f"{NAMESPACES}/{name}", "netns", "del", name))
    each("link", lambda name, _: delete(f"/sys/class/net/{name}", "link", "del", name))
    each("file", remove_file)
    each("folder", remove_folder)
    return left


def kill_processes(waiting: list[ProcessIdentity], left: list[str]) -> None:
    """Kill processes and their descendants. Each process is frozen before its children are listed, so that it cannot
    fork more."""
    found: dict[int, ProcessIdentity] = {}
    while waiting:
        identity = waiting.pop()
        if identity.pid not in found and identity.signal(signal.SIGSTOP):
            found[identity.pid] = identity
            wait_frozen(identity)
            waiting += children_of(identity.pid)
    end(found.values(), left)


def wait_frozen(identity: ProcessIdentity) -> None:
    """Wait until SIGSTOP has taken effect on a process, or the process is blocked in the kernel: then it cannot fork
    either."""
    deadline = time.monotonic() + FREEZE_SECONDS_MAX
    while identity.is_alive and not identity.is_stopped and time.monotonic() < deadline:
        time.sleep(FREEZE_POLL_SECONDS)


def end(identities: Iterable[ProcessIdentity], left: list[str]) -> None:
    """Kill these processes and wait until they are gone."""
    alive = list(identities)
    for identity in alive:
        identity.signal(signal.SIGKILL)
        identity.signal(signal.SIGCONT)
    deadline = time.monotonic() + KILL_SECONDS_MAX
    while alive and time.monotonic() < deadline:
        alive = [identity for identity in alive if identity.is_alive]
        time.sleep(POLL_SECONDS if alive else 0)
    left += [f"process {identity.pid}: it does not end" for identity in alive]


def marked(words: set[str]) -> list[ProcessIdentity]:
    """Return the processes that were started with any of these words (NAME=VALUE) in their environment."""
    wanted = set(map(str.encode, words))
    found = []
    for pid in process_ids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                is_marked = not wanted.isdisjoint(file.read().split(b"\0"))
        except OSError:
            continue
        identity = identify(pid) if is_marked else None
        found += [identity] if identity is not None else []
    return found


def children_of(parent: int) -> list[ProcessIdentity]:
    """Return the running children of this process."""
    found = []
    for pid in process_ids():
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                is_child = int(file.read().rpartition(")")[2].split()[1]) == parent
        except OSError:
            continue
        identity = identify(pid) if is_child else None
        found += [identity] if identity is not None else []
    return found


def process_ids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def end_processes_inside(name: str, _: str) -> str:
    """End the processes in a network namespace. Only the run can have started processes there."""
    try:
        inode = os.stat(f"{NAMESPACES}/{name}").st_ino
    except FileNotFoundError:
        return ""
    inside = []
    for pid in process_ids():
        try:
            is_inside = os.stat(f"/proc/{pid}/ns/net").st_ino == inode
        except OSError:
            continue
        identity = identify(pid) if is_inside else None
        inside += [identity] if identity is not None else []
    left: list[str] = []
    end(inside, left)
    return "; ".join(left)


def unmount(path: str, _: str = "") -> str:
    """Unmount everything that is mounted at a path: at once if it is not busy, otherwise as soon as it is not."""
    libc = ctypes.CDLL(None, use_errno=True)
    while os.path.ismount(path):
        if libc.umount2(os.fsencode(path), 0) and libc.umount2(os.fsencode(path), MNT_DETACH):
            return os.strerror(ctypes.get_errno())
    return ""


def delete(trace: str, *words: str) -> str:
    """Delete a resource by running `ip` with these words, if the file that shows the resource exists. Deleting either
    end of a veth pair deletes the pair."""
    if not os.path.exists(trace):
        return ""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False)
    return done.stderr.strip() if os.path.exists(trace) else ""


def remove_file(path: str, _: str) -> str:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return ""
    return ""


def remove_folder(path: str, proof: str) -> str:
    """Remove a folder if it is the one that was registered; mounts below it are unmounted first."""
    if not os.path.lexists(path):
        return ""
    state = os.lstat(path)
    if proof and f"{state.st_dev}:{state.st_ino}" != proof:
        return "it is another folder than the one that was registered"
    for mounted in mounts_below(path):
        why = unmount(mounted)
        if why:
            return f"{mounted} cannot be unmounted: {why}"
    for _ in range(BUSY_TRIES):  # a file may be created while the folder is emptied
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            return ""
        time.sleep(POLL_SECONDS)
    shutil.rmtree(path)
    return ""


def mounts_below(path: str) -> list[str]:
    """Return the mount points in a folder, the innermost first."""
    with open("/proc/self/mountinfo", "rb") as file:
        escaped = [line.split()[4] for line in file]
    points = [os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code[1], 8)]), one)) for one in escaped]
    return sorted((point for point in points if point.startswith(path + "/")), key=len, reverse=True)


if __name__ == "__main__":
    main()
