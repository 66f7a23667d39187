"""On which machine a run was made, by what its record says of processor and GPUs."""

import dataclasses
from collections.abc import Sequence

from rnn_scaling.records.record import RunRecord

UNKNOWN = "a machine that is not recorded"


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
        cores = f" ({self.cores} core{'' if self.cores == 1 else 's'})" if self.cores else ""
        return ", ".join([*gpus, *([f"{self.cpu}{cores}"] if self.cpu else [])]) or UNKNOWN


def machine(run: RunRecord) -> Machine:
    environment = run.environment
    gpus = tuple(str(gpu.get("name")) for gpu in environment.gpus)
    return Machine(environment.cpu, environment.cpu_cores, gpus)


def nodes(run: RunRecord) -> int:
    """The number of machines of a run; 1 if unknown."""
    workers = run.workers
    return max(1, len({workers.machine(rank) for rank in workers.ranks})) if workers else 1


def by_machine(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
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
