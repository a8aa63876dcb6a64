"""What differs between the worlds of a swarm: each seed draws how slow links and disks are and how often the rare thing
happens, so that no run is like all others. Half of the worlds are quick ones, in which K6's times are binding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from kraft.sim.world.chance import NamedRandom
from kraft.sim.world.options import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS, WorldOptions

T = TypeVar("T")


def draw_options(seed: int, trace_lines: int) -> tuple[WorldOptions, bool]:
    """The world's options for this seed, and whether it is a quick world."""
    random = NamedRandom(seed, "swarm")

    def one_of(choices: Sequence[T]) -> T:
        return choices[random.below(len(choices))]

    options = WorldOptions(
        cold_read_one_in=one_of((0, 8, 64, 64)),
        partial_read_one_in=one_of((4, 16, 16, 256)),
        tiny_read_one_in=one_of((16, 128, 128, 0)),
        write_back_age_ns=one_of((SECOND_NS, 30 * SECOND_NS, 30 * SECOND_NS)),
        trace_lines=trace_lines,
    )
    is_quick = bool(random.below(2))
    if is_quick:
        return options, True
    slow = replace(
        options,
        delay_jitter_ns=one_of((160 * MICROSECOND_NS, 2 * MILLISECOND_NS, 10 * MILLISECOND_NS)),
        slow_delay_ns=one_of((5 * MILLISECOND_NS, 50 * MILLISECOND_NS)),
        slow_delay_one_in=one_of((20, 200)),
        pass_delay_ns=one_of((20 * MICROSECOND_NS, MILLISECOND_NS)),
        sync_delay_jitter_ns=one_of((2 * MILLISECOND_NS, 20 * MILLISECOND_NS)),
        slow_sync_ns=one_of((40 * MILLISECOND_NS, 400 * MILLISECOND_NS)),
        slow_sync_one_in=one_of((20, 200)),
        offload_delay_jitter_ns=one_of((500 * MICROSECOND_NS, 10 * MILLISECOND_NS)),
        drift_ppm_max=one_of((200, 10_000)),
    )
    return slow, False
