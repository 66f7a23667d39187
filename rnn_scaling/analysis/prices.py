"""What machines cost and how much power they take: machines.toml, and which of its machines made a run."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.analysis.machines import machine, nodes
from rnn_scaling.files import input_files
from rnn_scaling.records.decoding import Length, Name, Part, PositiveCount, decode
from rnn_scaling.records.record import RunRecord

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT = "machines.toml"
MATCHED = ("cpu", "gpu", "gpus", "nodes")  # keys that a run is matched by


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PricedMachine(Part):
    """One [[machine]] of the file. Empty or 0: the file does not say."""

    name: Name
    cpu: Name = ""  # a part of the processor's name, in any case; of the name of each GPU in `gpu`
    gpu: Name = ""
    gpus: PositiveCount = 0
    nodes: PositiveCount = 0
    price_per_hour: Length = 0.0  # of one node
    currency: Name = ""
    power_w: Length = 0.0  # of one node


_KEYS = [field.name for field in dataclasses.fields(PricedMachine) if field.name != "further"]


@dataclasses.dataclass(frozen=True)
class PriceList:
    """The machines of a file. `chosen`: made all runs, whatever their records say."""

    source: str = DEFAULT
    machines: tuple[PricedMachine, ...] = ()
    chosen: PricedMachine | None = None

    def of(self, run: RunRecord) -> PricedMachine | None:
        """The machine that made a run; None if no machine matches. Refusal if several match equally well."""
        if self.chosen:
            return self.chosen
        fits = {priced.name: _fit(priced, run) for priced in self.machines}
        best = [priced for priced in self.machines if 0 < fits[priced.name] == max(fits.values())]
        if len(best) > 1:
            names = " and ".join(priced.name for priced in best)
            rule = f"{names} match {machine(run).name} equally well"
            raise entry.Refusal(f"{self.source}: {rule}; add gpus or nodes to one, or choose with --machine=NAME")
        return best[0] if best else None

    def unmatched(self, runs: Sequence[RunRecord]) -> list[str]:
        """A line for each machine of these runs that the file does not have."""
        names = dict.fromkeys(machine(run).name for run in runs if self.machines and self.of(run) is None)
        return [f"{self.source} has no machine for {name}: its runs get no costs; --machine=NAME" for name in names]


NO_PRICES = PriceList()


def _fit(priced: PricedMachine, run: RunRecord) -> int:
    """How many keys of the file match the run; 0: it is another machine. One without GPU keys has no GPUs."""
    made_on = machine(run)
    if bool(priced.gpu or priced.gpus) != bool(made_on.gpus):
        return 0
    matches = {
        "cpu": priced.cpu.lower() in (made_on.cpu or "").lower(),
        "gpu": all(priced.gpu.lower() in gpu.lower() for gpu in made_on.gpus),
        "gpus": priced.gpus == len(made_on.gpus),
        "nodes": priced.nodes == nodes(run),
    }
    given = [name for name in MATCHED if getattr(priced, name)]
    return len(given) if all(matches[name] for name in given) else 0


def read(path: Path | None, names: str = "", num_folders: int = 1) -> list[PriceList]:
    """The price list of each folder of runs.

    Args:
      path: the file; None: machines.toml in the current folder, if there is one.
      names: of the machine of all folders, or of each folder's, separated by commas; empty: matched by the records.

    Raises:
      Refusal: a line for each mistake.
    """
    path = path or (Path(DEFAULT) if Path(DEFAULT).exists() else None)
    chosen = [name.strip() for name in names.split(",")] if names else []
    if path is None:
        if chosen:
            raise entry.Refusal(f"--machine={names} needs {DEFAULT} in the current folder, or --machines=FILE")
        return [NO_PRICES] * num_folders
    machines = {priced.name: priced for priced in _machines(path)}
    known = ", ".join(machines) or "no machine"
    if unknown := [name for name in chosen if name not in machines]:
        raise entry.Refusal(*(f"--machine={name} is not in {path}, which has {known}" for name in unknown))
    if len(chosen) not in (0, 1, num_folders):
        raise entry.Refusal(f"--machine={names} names {len(chosen)} machines for {num_folders} folders; give one each")
    of_folders = chosen * num_folders if len(chosen) == 1 else chosen or [""] * num_folders
    return [PriceList(str(path), tuple(machines.values()), machines.get(name)) for name in of_folders]


def _machines(path: Path) -> list[PricedMachine]:
    try:
        content = tomllib.loads(input_files.read_bytes(path).decode("utf-8-sig"))
    except OSError as e:
        raise entry.Refusal(f"{path}: {e.strerror or e}; give another file with --machines=FILE") from None
    except (ValueError, RecursionError) as e:  # a TOMLDecodeError is a ValueError
        raise entry.Refusal(f"{path}: not TOML ({' '.join(str(e).split())}); docs/machines.md shows a file") from None
    tables = content.pop("machine", [])
    faults = [f"{key}: unknown key; every machine is a table [[machine]]" for key in content]
    if not isinstance(tables, list):
        faults, tables = [*faults, "machine: expected tables, written as [[machine]]"], []
    machines: list[PricedMachine] = []
    for number, table in enumerate(tables, 1):
        name = table.get("name") if isinstance(table, dict) else None
        where = f"machine {number} ({name})" if isinstance(name, str) else f"machine {number}"
        before = len(faults)
        priced = decode(PricedMachine, table, where, faults)
        if len(faults) == before:
            faults += [f"{where}: {fault}" for fault in _faults(priced, machines)]
            machines.append(priced)
    if faults:
        raise entry.Refusal(*(entry.printable(f"{path}: {fault}") for fault in faults))
    return machines


def _faults(priced: PricedMachine, others: Sequence[PricedMachine]) -> list[str]:
    """What is wrong with a machine, next to those before it in the file."""
    faults = [f"unknown key {key}; expected {', '.join(_KEYS)}" for key in priced.further or ()]
    if priced.name in [other.name for other in others]:
        faults.append("the name is taken; give each machine its own")
    if "," in priced.name:
        faults.append("name holds a comma, which --machine separates names by; use another character")
    if bool(priced.price_per_hour) != bool(priced.currency):
        faults.append('price_per_hour and currency belong together; give both, such as 0.714 and "USD"')
    currencies = [other.currency for other in others if other.currency]
    if priced.currency and currencies and priced.currency != currencies[0]:
        faults.append(f"currency is {priced.currency}, other machines have {currencies[0]}; convert the prices to one")
    return faults
