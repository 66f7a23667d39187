"""Energy of a run from the counters of its machines. Each machine counts once, however many processes it ran."""

import math
from collections import defaultdict

from rnn_scaling.records.parts import Energy
from rnn_scaling.records.record import RunRecord

MOST_PAUSES = 1.1  # measured seconds / seconds of the batches; above it, the average power is not that of the batches


def of_run(run: RunRecord) -> tuple[float | None, str]:
    """(joules per item, what was measured and what was not); None if the machines have different counters, or none."""
    throughput = run.throughput
    if throughput is None or not throughput.items or not throughput.seconds:
        return None, ""
    processes = [("", run.energy)]
    if run.workers:
        processes = [(run.workers.machine(rank), rank.energy) for rank in run.workers.ranks]
    machines = defaultdict[str, list[Energy]](list)
    for machine, energy in processes:
        machines[machine] += [energy] if energy and energy.seconds else []
    watts, sources = 0.0, set()
    for energies in machines.values():
        power = {name: joules / energy.seconds for energy in energies for name, joules in energy.joules.items()}
        if not power or max(energy.seconds for energy in energies) > MOST_PAUSES * throughput.seconds:
            return None, ""
        watts += math.fsum(power.values())
        missing = [item for energy in energies for item in energy.not_measured.items() if item[0] not in power]
        reasons = {_kind(name): reason for name, reason in missing}
        parts = [f"measured: {', '.join(dict.fromkeys(map(_kind, power)))}"]
        sources.add("; ".join([*parts, *(f"not measured: {kind} ({reason})" for kind, reason in reasons.items())]))
    return (watts * throughput.seconds / throughput.items, sources.pop()) if len(sources) == 1 else (None, "")


def _kind(name: str) -> str:
    """ "package" of package-0, "dram" of "package-0 dram", "GPU" of "GPU 3"."""
    return "dram" if name.endswith("dram") else name.replace("-", " ").split()[0]
