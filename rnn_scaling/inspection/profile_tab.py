"""Makes a kept trace readable for TensorBoard's tab Profile: its tools find the steps. Pure.

TensorFlow says of every piece of an executor's work which iteration of a loop it belongs to. Where a step has loops,
the tab counts each iteration as a step and then ignores the marked steps: it finds no step time at all
(xla/tsl/profiler/utils/group_events.cc, ProcessTensorFlowLoop). Without that statistic it finds the marked steps.
"""

from __future__ import annotations

from typing import Any

from rnn_scaling.inspection.xplane import HOST_PLANE

ITERATION = "iter_num"  # the statistic with the iteration of a loop


def drop_iterations(space: Any) -> None:
    """Removes the statistic from a trace."""
    for plane in space.planes:
        if plane.name != HOST_PLANE:
            continue
        iterations = {number for number, metadata in plane.stat_metadata.items() if metadata.name == ITERATION}
        for event in (event for line in plane.lines for event in line.events):
            for i in reversed(range(len(event.stats))):
                if event.stats[i].metadata_id in iterations:
                    del event.stats[i]
