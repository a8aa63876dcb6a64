"""Pure: the toxic of toxiproxy for a link fault that kraft.seam.LinkQuality cannot express, and how much toxics add to
the times of a probe.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from kraft.seam import LinkQuality
from kraft.sim.chaos.clusters.link_probes import ProbeTimes
from kraft.sim.chaos.proxies.toxics import ByteConditions, ConnectionPolicy, Toxic, toxics_of
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.plan import Fault

STREAMS = MappingProxyType({"": "", "up": "upstream", "down": "downstream"})
"""`stream` of a fault → `stream` of its toxic, relative to the direction that has the fault."""


def toxic_of(fault: Fault) -> Toxic:
    """Return the toxic for the direction from the fault's node to its other end. ToxiproxyError if its values are
    invalid; KeyError if its kind has no toxic."""
    toxic = _quality_of(fault) if fault.kind in plan.QUALITY_KINDS else _of_kind(fault)
    return replace(toxic, toxicity=fault.toxicity_percent / 100, stream=STREAMS[fault.stream])


def _of_kind(fault: Fault) -> Toxic:
    if fault.kind == plan.SLICER:
        pieces = {"average_size": fault.amount, "size_variation": fault.variation_bytes, "delay": fault.delay_us}
        return Toxic("slicer", pieces)
    name, attribute = {
        plan.SLOW_CLOSE: ("slow_close", "delay"),
        plan.TIMEOUT: ("timeout", "timeout"),
        plan.RESET_PEER: ("reset_peer", "timeout"),
    }[fault.kind]
    return Toxic(name, {attribute: fault.amount})


def way_of(quality: LinkQuality) -> ByteConditions:
    """Convert a link quality to the latency and limits that a proxy applies to the bytes of one direction."""
    return ByteConditions(
        latency_ms=quality.latency_ms,
        jitter_ms=quality.jitter_ms,
        bytes_per_second=quality.bytes_per_second,
        bytes_max=quality.bytes_max,
    )


def _quality_of(fault: Fault) -> Toxic:
    """Return the single toxic of a fault whose kind is a link quality."""
    (toxic,) = toxics_of(way_of(fault.quality), ConnectionPolicy.OPEN, "upstream").values()
    return toxic


def added_of(way: ByteConditions) -> ProbeTimes:
    """Return the minimum delay that these conditions add to each time of a probe; 0 for a time that their toxics do not
    determine."""
    latencies = [_latency_of(way.latency_ms, 0)]
    latencies += [_latency_of(**toxic.attributes) for toxic in way.toxics if toxic.type == "latency"]
    closes = [toxic.attributes["delay"] for toxic in way.toxics if toxic.type == "slow_close"]
    return ProbeTimes(float(sum(latencies)), float(sum(closes)))


def _latency_of(latency: int, jitter: int) -> int:
    """Return the minimum latency of a toxic. toxiproxy adds or subtracts the jitter."""
    return max(0, latency - jitter)
