"""On which machine a run was made, by its processor and GPUs, and what the counters of its machines say of energy."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Sequence

from rnn_scaling.records.parts import Energy
from rnn_scaling.records.record import RunRecord

UNKNOWN = "a machine that is not recorded"
MOST_PAUSES = 1.1  # measured seconds / seconds of the batches; above it, the average power is not that of the batches


@dataclasses.dataclass(frozen=True)
class Machine:
    """A processor's name, its cores (None: not recorded), and the names of the GPUs."""

    cpu: str | None
    cores: int | None
    gpus: tuple[str, ...]

    @property
    def name(self) -> str:
        """In a few words: "2 x NVIDIA H200, AMD EPYC 9654 (192 cores)"."""
        gpus = [f"{self.gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(self.gpus)]
        cores = (
            f" ({self.cores} core{'' if self.cores == 1 else 's'})"
            if self.cores
            else ""
        )
        return (
            ", ".join([*gpus, *([f"{self.cpu}{cores}"] if self.cpu else [])]) or UNKNOWN
        )


def machine(run: RunRecord) -> Machine:
    environment = run.environment
    gpus = tuple(str(gpu.get("name")) for gpu in environment.gpus)
    return Machine(environment.cpu, environment.cpu_cores, gpus)


def nodes(run: RunRecord) -> int:
    """The number of machines of a run; 1 if unknown."""
    workers = run.workers
    return (
        max(1, len({workers.machine(rank) for rank in workers.ranks})) if workers else 1
    )


def group_by_machine(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """The runs of each machine, by its name, in the order of the records.

    Runs without a machine belong to the only one there is; of several, to the first one if they measured nothing.
    """
    names = [machine(record).name for record in records]
    groups: dict[str, list[RunRecord]] = {name: [] for name in names}
    known = [name for name in groups if name != UNKNOWN]
    for record, name in zip(records, names):
        if name == UNKNOWN and known and (len(known) == 1 or record.throughput is None):
            groups[known[0]].append(record)
        else:
            groups[name].append(record)
    return {name: members for name, members in groups.items() if members}


def energy_per_item(run: RunRecord) -> tuple[float | None, str]:
    """(joules per item, what was measured and what was not); None if the machines have different counters, or none.

    Each machine counts once, however many processes it ran.
    """
    throughput = run.throughput
    if throughput is None or not throughput.items or not throughput.seconds:
        return None, ""
    processes = [("", run.energy)]
    if run.workers:
        processes = [
            (run.workers.machine(rank), rank.energy) for rank in run.workers.ranks
        ]
    machines = defaultdict[str, list[Energy]](list)
    for machine, energy in processes:
        machines[machine] += [energy] if energy and energy.seconds else []
    watts = 0.0
    sources = set()
    for energies in machines.values():
        power = {
            name: joules / energy.seconds
            for energy in energies
            for name, joules in energy.joules.items()
        }
        if (
            not power
            or max(energy.seconds for energy in energies)
            > MOST_PAUSES * throughput.seconds
        ):
            return None, ""
        watts += math.fsum(power.values())
        missing = [
            item
            for energy in energies
            for item in energy.not_measured.items()
            if item[0] not in power
        ]
        reasons = {_kind(name): reason for name, reason in missing}
        parts = [f"measured: {', '.join(dict.fromkeys(map(_kind, power)))}"]
        sources.add(
            "; ".join(
                [
                    *parts,
                    *(
                        f"not measured: {kind} ({reason})"
                        for kind, reason in reasons.items()
                    ),
                ]
            )
        )
    return (
        (watts * throughput.seconds / throughput.items, sources.pop())
        if len(sources) == 1
        else (None, "")
    )


def _kind(name: str) -> str:
    """ "package" of package-0, "dram" of "package-0 dram", "GPU" of "GPU 3"."""
    return "dram" if name.endswith("dram") else name.replace("-", " ").split()[0]
