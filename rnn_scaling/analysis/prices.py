"""Read prices and powers of machines from machines.toml, and match them to runs.

Users write machines.toml: never rename one of its keys.

The commands call `read_price_lists`; rows, comparisons and predictions ask the
`PriceList` for the price of a machine.
"""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rnn_scaling.analysis.machines import count_nodes, identify_machine
from rnn_scaling.records.decoding import (
    Name,
    Part,
    PositiveCount,
    PositiveNumber,
    decode,
)
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_DEFAULT_PATH = Path("machines.toml")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PricedMachine(Part):
    """One [[machine]] of the file; docs/compare.md describes the keys.

    Missing keys are empty or 0. Prices and powers are per node.
    """

    name: Name
    cpu: Name = ""
    gpu: Name = ""
    gpus: PositiveCount = 0
    nodes: PositiveCount = 0
    price_per_hour: PositiveNumber = 0.0
    currency: Name = ""
    power_w: PositiveNumber = 0.0


@dataclasses.dataclass(frozen=True)
class PriceList:
    """The machines of a file.

    Attributes:
      source: The file, for messages.
      machines: The machines of the file.
      chosen: The machine of all runs, as the user named it; None if runs are matched.
    """

    source: str = ""
    machines: tuple[PricedMachine, ...] = ()
    chosen: PricedMachine | None = None

    def match(self, run: RunRecord) -> PricedMachine | None:
        """Return the machine of a run; None if no machine matches.

        Raises:
          Refusal: If several machines match equally well.
        """
        if self.chosen is not None:
            return self.chosen
        if not self.machines:
            return None
        qualities = [_match_quality(priced, run) for priced in self.machines]
        best = max(qualities)
        if best == 0:
            return None
        if qualities.count(best) == 1:
            return self.machines[qualities.index(best)]
        names = [
            priced.name
            for priced, quality in zip(self.machines, qualities)
            if quality == best
        ]
        raise entry.Refusal(
            f"{self.source}: {' and '.join(names)} match "
            f"{identify_machine(run).name} equally well; add gpus or nodes to one, or "
            "choose with --machine=NAME"
        )

    def unmatched_warnings(self, runs: Sequence[RunRecord]) -> list[str]:
        """Return a warning per machine of these runs that the file does not have."""
        if not self.machines:
            return []
        names = [identify_machine(run).name for run in runs if self.match(run) is None]
        return [
            f"{self.source}: no machine for {name}, so no costs; give --machine=NAME"
            for name in dict.fromkeys(names)
        ]


NO_PRICES = PriceList()


def _match_quality(priced: PricedMachine, run: RunRecord) -> int:
    """Return the number of matching keys; 0 for another machine.

    A machine without GPU keys has no GPUs.
    """
    cpu = (identify_machine(run).cpu or "").lower()
    gpus = [gpu.lower() for gpu in identify_machine(run).gpus]
    if bool(priced.gpu or priced.gpus) != bool(gpus):
        return 0
    matches = {
        "cpu": priced.cpu.lower() in cpu,
        "gpu": all(priced.gpu.lower() in gpu for gpu in gpus),
        "gpus": priced.gpus == len(gpus),
        "nodes": priced.nodes == count_nodes(run),
    }
    required = [name for name in matches if getattr(priced, name)]
    return len(required) if all(matches[name] for name in required) else 0


def read_price_lists(
    path: Path | None, names: str = "", num_folders: int = 1
) -> list[PriceList]:
    """Return the price list of each folder of runs.

    Args:
      path: The file; by default machines.toml in the current folder, if it exists.
      names: The value of --machine: one machine for all folders, or one for each,
        separated by commas. If empty, runs are matched.
      num_folders: Number of folders of runs.

    Raises:
      Refusal: If the file or a name is wrong, with a line for each mistake.
    """
    if path is None and not _DEFAULT_PATH.exists() and not names:
        return [NO_PRICES] * num_folders
    path = path or _DEFAULT_PATH
    machines = {machine.name: machine for machine in _read_machines(path)}
    chosen_names = names.split(",") if "," in names else [names] * num_folders
    if len(chosen_names) != num_folders:
        raise entry.Refusal(
            f"--machine={names}: expected one name, or one per folder;"
            f" got {len(chosen_names)} names for {num_folders} folders"
        )
    unknown_names = [name for name in chosen_names if name and name not in machines]
    if unknown_names:
        choices = ", ".join(machines) or "no machine"
        raise entry.Refusal(
            f"--machine={names}: {unknown_names[0]} is not a machine of {path};"
            f" expected {choices}"
        )
    all_machines = tuple(machines.values())
    return [
        PriceList(str(path), all_machines, machines.get(name)) for name in chosen_names
    ]


def _read_machines(path: Path) -> list[PricedMachine]:
    """Return the machines of machines.toml; raise a Refusal for a wrong entry."""
    try:
        content = tomllib.loads(input_files.read_bytes(path).decode("utf-8-sig"))
    except OSError as e:
        raise entry.Refusal(
            f"{path}: {e.strerror or e}; --machines=FILE names the file of prices"
        ) from None
    except (ValueError, RecursionError) as e:
        raise entry.Refusal(
            f"{path}: not TOML ({' '.join(str(e).split())}); docs/compare.md has an "
            "example"
        ) from None
    tables = content.pop("machine", [])
    faults = [
        f"{key}: unknown key; write each machine as a table [[machine]]"
        for key in content
    ]
    if not isinstance(tables, list):
        faults.append("machine: expected tables, written as [[machine]]")
        tables = []
    machines: list[PricedMachine] = []
    for number, table in enumerate(tables, 1):
        title = f"machine {number}"
        if isinstance(table, dict) and "name" in table:
            title += f" ({table['name']})"
        num_faults = len(faults)
        machine = decode(PricedMachine, table, title, faults)
        if len(faults) == num_faults:
            faults += [f"{title}: {fault}" for fault in _find_faults(machine, machines)]
            machines.append(machine)
    if faults:
        raise entry.Refusal(
            *(entry.make_printable(f"{path}: {fault}") for fault in faults)
        )
    return machines


def _find_faults(
    machine: PricedMachine, earlier_machines: Sequence[PricedMachine]
) -> Iterator[str]:
    """Yield the faults of a machine, given the machines before it in the file."""
    fields = [field.name for field in dataclasses.fields(machine)]
    fields.remove("extra_fields")
    for key in machine.extra_fields or ():
        yield f"unknown key {key}; expected {', '.join(fields)}"
    earlier_names = {earlier.name for earlier in earlier_machines}
    if "," in machine.name or machine.name in earlier_names:
        yield "expected a unique name without a comma; rename the machine"
    if bool(machine.price_per_hour) != bool(machine.currency):
        yield (
            "price_per_hour and currency belong together; give both, such as 0.714 and"
            ' "USD"'
        )
    for earlier in earlier_machines:
        currencies = {machine.currency, earlier.currency} - {""}
        if len(currencies) > 1:
            yield (
                f"currency is {machine.currency}, but other machines have "
                f"{earlier.currency}; convert all prices to one currency"
            )
            break
