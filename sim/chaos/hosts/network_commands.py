"""The commands that create networks: ip, tc and nft; and whether they are available and allowed on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

COMMANDS = ("ip", "tc", "nsenter")
COMMAND_SECONDS_MAX = 20.0
LOSS_PROBE = """
table ip probe {
chain in {
type filter hook prerouting priority raw;
ip saddr 10.0.0.1 numgen random mod 9 < 1 counter drop
}
}
"""


class CannotUseNamespaces(Exception):
    """Network namespaces, or a requested property of them, are not available here; the text gives the reason."""


@cache
def can_use_namespaces() -> str:
    """Return "" if this process may create network namespaces and has the tools, otherwise the reason why not:
    determined by creating one."""
    return _probe(
        "qdisc add dev lo root handle 1: htb",
        "filter add dev lo parent 1: protocol ip prio 1 u32 match ip dst 10.0.0.1/32 flowid 1:1",
    )


@cache
def can_use_netem() -> str:
    """Return "" if packets can be delayed, dropped, reordered and duplicated as well, otherwise the reason why not."""
    reason = can_use_namespaces() or _probe("qdisc add dev lo root netem delay 1ms")
    return reason and f"latency, loss, reordering and duplicates need tc's netem (module sch_netem): {reason}"


@cache
def can_lose_packets() -> str:
    """Return "" if packets can be dropped, otherwise the reason why not: by netem, or without netem in the kernel by
    nftables at the receiver."""
    without_netem = can_use_netem()
    if not without_netem or can_use_namespaces():
        return without_netem
    if shutil.which("nft") is None:
        return f"{without_netem}; loss alone needs Debian's package nftables"
    return _probe(filters=LOSS_PROBE)


def inside(namespace: str, *words: str) -> list[str]:
    """Return the command that runs these words in a namespace by exec."""
    return ["nsenter", f"--net=/run/netns/{namespace}", "--", *words]


def _probe(*lines: str, filters: str = "") -> str:
    """Apply these lines of tc or nft in a temporary namespace; return the reason if that fails, "" if it succeeds."""
    if not sys.platform.startswith("linux"):
        return "network namespaces exist on Linux only"
    missing = [command for command in COMMANDS if shutil.which(command) is None]
    if missing:
        return f"not found: {', '.join(missing)}; install Debian's packages iproute2 and util-linux"
    name = f"kcprobe{os.getpid()}"
    try:
        run(["ip", "netns", "add", name])
    except CannotUseNamespaces as problem:
        return f"{problem}; it takes root, or a container with CAP_NET_ADMIN and CAP_SYS_ADMIN"
    try:
        run_batch(
            "ip", [f"link add {name}v type veth peer name {name}w", f"link add {name}b type bridge"], namespace=name
        )
        run_batch("tc", list(lines), namespace=name)
        if filters:
            run(inside(name, "nft", "-f", "-"), text=filters)
    except CannotUseNamespaces as problem:
        return str(problem)
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=COMMAND_SECONDS_MAX, check=False)
    return ""


def run_batch(command: str, lines: Sequence[str], *, namespace: str = "") -> None:
    """Run lines of ip or tc in one process, on the host or in a namespace."""
    if lines:
        where = ["-n", namespace] if namespace else []
        run([command, *where, "-batch", "-"], text="\n".join(lines) + "\n")


def run(words: Sequence[str], *, text: str = "") -> str:
    """Run a command and return its output. CannotUseNamespaces if it fails."""
    try:
        done = subprocess.run(
            words, input=text, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise CannotUseNamespaces(f"{' '.join(words)}: {problem}") from None
    if done.returncode:
        said = " ".join(line.strip() for line in done.stderr.splitlines() if "Command failed" not in line)
        raise CannotUseNamespaces(f"{' '.join(words[:4])}: {said or 'it failed'}")
    return done.stdout
