"""Pure: the toxic of toxiproxy that a fault of a link is, where kraft.seam.LinkQuality cannot say it, and what toxics
add to the times of a probe."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from kraft.seam import LinkQuality
from kraft.sim.chaos.clusters.link_probes import Times
from kraft.sim.chaos.proxies.toxics import Policy, Toxic, Way, toxics_of
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.plan import Fault

STREAMS = MappingProxyType({"": "", "up": "upstream", "down": "downstream"})
"""Of a fault → of a toxic, which is given for the way on which bytes fare badly."""


def toxic_of(fault: Fault) -> Toxic:
    """For the way from the fault's node to its other. ToxiproxyError if its values make no sense; KeyError if it is of
    another kind."""
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


def way_of(quality: LinkQuality) -> Way:
    """How bytes fare."""
    return Way(
        latency_ms=quality.latency_ms,
        jitter_ms=quality.jitter_ms,
        bytes_per_second=quality.bytes_per_second,
        bytes_max=quality.bytes_max,
    )


def _quality_of(fault: Fault) -> Toxic:
    """Each kind of quality is one toxic."""
    (toxic,) = toxics_of(way_of(fault.quality), Policy.OPEN, "upstream").values()
    return toxic


def added_of(way: Way) -> Times:
    """What it adds at least to the times of a probe, as far as its toxics say it; 0 where they do not."""
    latencies = [_latency_of(way.latency_ms, 0)]
    latencies += [_latency_of(**toxic.attributes) for toxic in way.toxics if toxic.type == "latency"]
    closes = [toxic.attributes["delay"] for toxic in way.toxics if toxic.type == "slow_close"]
    return Times(float(sum(latencies)), float(sum(closes)))


def _latency_of(latency: int, jitter: int) -> int:
    """Jitter goes both ways."""
    return max(0, latency - jitter)
