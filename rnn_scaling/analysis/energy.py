"""What the machines of a run used, by their own counters: each machine counts once, whatever ran on it."""

import dataclasses
import math
from collections import defaultdict

from rnn_scaling.records.parts import Energy
from rnn_scaling.records.record import RunRecord

MOST_PAUSES = 1.1  # seconds that were watched / those of the batches, up to which their power counts as the same


@dataclasses.dataclass(frozen=True)
class EnergyUse:
    """`source`: what was measured, and what was not and why."""

    joules_per_item: float
    source: str


def of_run(run: RunRecord) -> EnergyUse | None:
    """None where a machine of the run has no counters, or other counters than another one."""
    if run.throughput is None or not run.throughput.items or not run.throughput.seconds:
        return None
    of_machines: dict[str, list[Energy | None]] = defaultdict(list)
    for machine, energy in (
        [(run.workers.machine(rank), rank.energy) for rank in run.workers.ranks] if run.workers else [("", run.energy)]
    ):
        of_machines[machine].append(energy)
    watts, sources = 0.0, set()
    for readings in of_machines.values():
        told = [reading for reading in readings if reading and reading.seconds]
        power = {name: joules / reading.seconds for reading in told for name, joules in reading.joules.items()}
        if not power or max(reading.seconds for reading in told) > MOST_PAUSES * run.throughput.seconds:
            return None
        watts += math.fsum(power.values())
        sources.add(_source(power, {name: why for reading in told for name, why in reading.not_measured.items()}))
    if len(sources) > 1:
        return None
    return EnergyUse(watts * run.throughput.seconds / run.throughput.items, sources.pop())


def _source(measured: dict[str, float], not_measured: dict[str, str]) -> str:
    """ "measured: package, GPU; not measured: dram (needs root)"."""
    lacking = {_kind(name): why for name, why in not_measured.items() if name not in measured}
    parts = [f"measured: {', '.join(dict.fromkeys(map(_kind, measured)))}"]
    parts += [f"not measured: {kind} ({why})" for kind, why in lacking.items()]
    return "; ".join(parts)


def _kind(name: str) -> str:
    """ "package" of package-0, "dram" of "package-0 dram", "GPU" of "GPU 3"."""
    return name.split()[-1] if name.endswith("dram") else name.replace("-", " ").split()[0]
