"""Identify the machine of a run, and compute energy per item from its counters.

A machine is known only by what records contain: processor, cores and GPUs.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rnn_scaling.analysis.interval_kinds import EnergySource
from rnn_scaling.records.parts import Energy
from rnn_scaling.records.record import RunRecord

UNKNOWN = "a machine that is not recorded"
# Counters also run in pauses between the batches. If they ran longer than this times
# the seconds of the batches, the batches had another average power.
_MAX_TIME_RATIO = 1.1


@dataclasses.dataclass(frozen=True)
class Machine:
    """The processor and the GPUs of a machine; None if not recorded."""

    cpu: str | None
    cores: int | None
    gpus: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name such as "2 x NVIDIA H200, AMD EPYC 9654 (192 cores)"."""
        names = [f"{self.gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(self.gpus)]
        if self.cpu and self.cores:
            noun = "core" if self.cores == 1 else "cores"
            names.append(f"{self.cpu} ({self.cores} {noun})")
        elif self.cpu:
            names.append(self.cpu)
        return ", ".join(names) or UNKNOWN


def identify_machine(run: RunRecord) -> Machine:
    environment = run.environment
    gpus = tuple(str(gpu.get("name")) for gpu in environment.gpus)
    return Machine(environment.cpu, environment.cpu_cores, gpus)


def count_nodes(run: RunRecord) -> int:
    """Return the number of machines of a run; 1 if unknown."""
    workers = run.workers
    if not workers:
        return 1
    return max(1, len({workers.machine(rank) for rank in workers.ranks}))


def group_by_machine(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Return the runs of each machine, by its name, in the order of the records.

    Runs without a machine belong to the only machine. If there are several, they belong
    to the first one if they measured nothing.
    """
    names = [identify_machine(record).name for record in records]
    groups: dict[str, list[RunRecord]] = {name: [] for name in names}
    recorded = [name for name in groups if name != UNKNOWN]
    for record, name in zip(records, names):
        belongs_to_first = len(recorded) == 1 or record.throughput is None
        if name == UNKNOWN and recorded and belongs_to_first:
            name = recorded[0]
        groups[name].append(record)
    return {name: members for name, members in groups.items() if members}


def compute_energy_per_item(run: RunRecord) -> tuple[float, EnergySource] | None:
    """Return joules per item, and the counters that measured them.

    Each machine counts once, however many processes it ran.

    Returns:
      None if a machine has no counters, or if the machines have different ones.
    """
    throughput = run.throughput
    if throughput is None or not throughput.items or not throughput.seconds:
        return None
    power_w = 0.0
    sources = set()
    for energies in _group_energies_by_machine(run).values():
        counters_w = _compute_mean_power_w(energies)
        if not counters_w:
            return None
        longest_s = max(energy.seconds for energy in energies)
        if longest_s > _MAX_TIME_RATIO * throughput.seconds:
            return None
        power_w += math.fsum(counters_w.values())
        sources.add(_find_energy_source(energies, counters_w))
    if len(sources) != 1:
        return None
    return power_w * throughput.seconds / throughput.items, sources.pop()


def _compute_mean_power_w(energies: Sequence[Energy]) -> dict[str, float]:
    """Return the mean power by counter; a machine's processes read the same counters."""
    counters_w = {}
    for energy in energies:
        for name, joules in energy.joules.items():
            counters_w[name] = joules / energy.seconds
    return counters_w


def _find_energy_source(
    energies: Sequence[Energy], counters_w: Mapping[str, float]
) -> EnergySource:
    """Return the kinds of counters that measured, and why others did not."""
    missing = {}
    for energy in energies:
        for name, reason in energy.not_measured.items():
            if name not in counters_w:
                missing[_find_counter_kind(name)] = reason
    measured = tuple(dict.fromkeys(map(_find_counter_kind, counters_w)))
    return EnergySource(measured, tuple(missing.items()))


def _group_energies_by_machine(run: RunRecord) -> dict[str, list[Energy]]:
    processes = [("", run.energy)]
    if run.workers:
        processes = [
            (run.workers.machine(rank), rank.energy) for rank in run.workers.ranks
        ]
    energies: dict[str, list[Energy]] = defaultdict(list)
    for name, energy in processes:
        energies[name] += [energy] if energy and energy.seconds else []
    return energies


def _find_counter_kind(name: str) -> str:
    """Return "package" for package-0, "dram" for "package-0 dram", "GPU" for "GPU 3"."""
    return "dram" if name.endswith("dram") else name.replace("-", " ").split()[0]
