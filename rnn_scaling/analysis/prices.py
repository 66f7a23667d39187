"""Prices and powers of machines: reads machines.toml and finds the machine of a run."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.analysis.machines import machine, nodes
from rnn_scaling.records.decoding import Length, Name, Part, PositiveCount, decode
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT = Path("machines.toml")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PricedMachine(Part):
    """One [[machine]] of the file; docs/machines.md describes the keys. Empty or 0: not in the file."""

    name: Name
    cpu: Name = ""
    gpu: Name = ""
    gpus: PositiveCount = 0
    nodes: PositiveCount = 0
    price_per_hour: Length = 0.0  # of one node, as the power
    currency: Name = ""
    power_w: Length = 0.0


@dataclasses.dataclass(frozen=True)
class PriceList:
    """The machines of a file. `chosen`: the machine of all runs, without matching."""

    source: str = ""
    machines: tuple[PricedMachine, ...] = ()
    chosen: PricedMachine | None = None

    def match(self, run: RunRecord) -> PricedMachine | None:
        """The machine of a run; None if no machine matches. Raises Refusal if several match equally well."""
        fits = {
            priced.name: _fit(priced, run)
            for priced in self.machines
            if not self.chosen
        }
        best = [
            priced
            for priced in self.machines
            if 0 < fits.get(priced.name, 0) == max(fits.values())
        ]
        if len(best) > 1:
            names = " and ".join(priced.name for priced in best)
            rule = f"{names} match {machine(run).name} equally well"
            raise entry.Refusal(
                f"{self.source}: {rule}; add gpus or nodes to one, or choose with --machine=NAME"
            )
        return best[0] if best else self.chosen

    def unmatched(self, runs: Sequence[RunRecord]) -> list[str]:
        """A warning for each machine of these runs that the file does not have."""
        names = dict.fromkeys(
            machine(run).name
            for run in runs
            if self.machines and self.match(run) is None
        )
        return [
            f"{self.source}: no machine for {name}, so no costs; give --machine=NAME"
            for name in names
        ]


NO_PRICES = PriceList()


def _fit(priced: PricedMachine, run: RunRecord) -> int:
    """The number of matching keys; 0 for another machine. A machine without GPU keys has no GPUs."""
    cpu = (machine(run).cpu or "").lower()
    gpus = [gpu.lower() for gpu in machine(run).gpus]
    matches = {
        "cpu": priced.cpu.lower() in cpu,
        "gpu": all(priced.gpu.lower() in gpu for gpu in gpus),
    }
    matches |= {"gpus": priced.gpus == len(gpus), "nodes": priced.nodes == nodes(run)}
    given = [matches[name] for name in matches if getattr(priced, name)]
    return (
        len(given)
        if all(given) and bool(priced.gpu or priced.gpus) == bool(gpus)
        else 0
    )


def read(path: Path | None, names: str = "", num_folders: int = 1) -> list[PriceList]:
    """The price list of each folder of runs. Raises Refusal with a line for each mistake.

    Args:
      path: the file; by default machines.toml in the current folder, if it exists.
      names: one machine for all folders, or one for each, separated by commas; if empty, runs are matched.
    """
    if path is None and not DEFAULT.exists() and not names:
        return [NO_PRICES] * num_folders
    path = path or DEFAULT
    machines = {priced.name: priced for priced in _machines(path)}
    chosen = names.split(",") if "," in names else [names] * num_folders
    if (
        unknown := [name for name in chosen if name and name not in machines]
        or chosen[num_folders:]
    ):
        known = ", ".join(machines) or "no machine"
        raise entry.Refusal(
            f"--machine={names}: expected one name, or one per folder, out of {known}; got {unknown[0]}"
        )
    return [
        PriceList(str(path), tuple(machines.values()), machines.get(name))
        for name in chosen
    ]


def _machines(path: Path) -> list[PricedMachine]:
    try:
        content = tomllib.loads(input_files.read_bytes(path).decode("utf-8-sig"))
    except OSError as e:
        raise entry.Refusal(
            f"{path}: {e.strerror or e}; --machines=FILE names the file of prices"
        ) from None
    except (ValueError, RecursionError) as e:
        raise entry.Refusal(
            f"{path}: not TOML ({' '.join(str(e).split())}); docs/machines.md shows a file"
        ) from None
    tables = content.pop("machine", [])
    faults = [
        f"{key}: unknown key; write each machine as a table [[machine]]"
        for key in content
    ]
    if not isinstance(tables, list):
        faults = [*faults, "machine: expected tables, written as [[machine]]"]
        tables = []
    machines: list[PricedMachine] = []
    for number, table in enumerate(tables, 1):
        where = f"machine {number}"
        before = len(faults)
        if isinstance(table, dict) and "name" in table:
            where += f" ({table['name']})"
        priced = decode(PricedMachine, table, where, faults)
        if len(faults) == before:
            faults += [f"{where}: {fault}" for fault in _faults(priced, machines)]
            machines.append(priced)
    if faults:
        raise entry.Refusal(*(entry.printable(f"{path}: {fault}") for fault in faults))
    return machines


def _faults(priced: PricedMachine, earlier: Sequence[PricedMachine]) -> list[str]:
    """What is wrong with a machine, given those before it in the file."""
    keys = [
        field.name for field in dataclasses.fields(priced) if field.name != "further"
    ]
    faults = [
        f"unknown key {key}; expected {', '.join(keys)}" for key in priced.further or ()
    ]
    if "," in priced.name or priced.name in [known.name for known in earlier]:
        faults.append("expected a unique name without a comma; rename the machine")
    if bool(priced.price_per_hour) != bool(priced.currency):
        faults.append(
            'price_per_hour and currency belong together; give both, such as 0.714 and "USD"'
        )
    if different := {
        known.currency for known in earlier if priced.currency and known.currency
    } - {priced.currency}:
        faults.append(
            f"currency is {priced.currency}, other machines have {different.pop()}; convert the prices to one"
        )
    return faults
