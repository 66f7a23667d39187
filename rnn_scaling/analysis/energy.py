"""What the machines of a run used, by their own counters: each machine counts once, whatever ran on it."""

import math
from collections import defaultdict

from rnn_scaling.records.parts import Energy
from rnn_scaling.records.record import RunRecord

MOST_PAUSES = 1.1  # seconds that were watched / those of the batches, up to which their power counts as the same


def of_run(run: RunRecord) -> tuple[float | None, str]:
    """Joules per item, and what was measured and what was not; None where its machines have no common counters."""
    throughput, of_machines = run.throughput, defaultdict[str, list[Energy]](list)
    for machine, energy in (
        [(run.workers.machine(rank), rank.energy) for rank in run.workers.ranks] if run.workers else [("", run.energy)]
    ):
        of_machines[machine] += [energy] if energy and energy.seconds else []
    if throughput is None or not throughput.items or not throughput.seconds:
        return None, ""
    watts, sources = 0.0, set()
    for told in of_machines.values():
        power = {name: joules / energy.seconds for energy in told for name, joules in energy.joules.items()}
        if not power or max(energy.seconds for energy in told) > MOST_PAUSES * throughput.seconds:
            return None, ""
        watts += math.fsum(power.values())
        lacking = {_kind(name): why for each in told for name, why in each.not_measured.items() if name not in power}
        parts = [f"measured: {', '.join(dict.fromkeys(map(_kind, power)))}"]
        sources.add("; ".join([*parts, *(f"not measured: {kind} ({why})" for kind, why in lacking.items())]))
    return (watts * throughput.seconds / throughput.items, sources.pop()) if len(sources) == 1 else (None, "")


def _kind(name: str) -> str:
    """ "package" of package-0, "dram" of "package-0 dram", "GPU" of "GPU 3"."""
    return "dram" if name.endswith("dram") else name.replace("-", " ").split()[0]
