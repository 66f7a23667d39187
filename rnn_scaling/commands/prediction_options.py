"""The flags that `predict`, `whatif` and `simulate` share, and the curves that they ask for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rnn_scaling import entry
from rnn_scaling.models.config import option

if TYPE_CHECKING:  # help and wrong flags do not wait for them
    from rnn_scaling.analysis.prediction.curves import Curve, Link
    from rnn_scaling.analysis.rows import Row
    from rnn_scaling.analysis.statements import Statement

BITS = 8
LARGEST = 1_000_000  # devices


def device_counts(text: str) -> tuple[int, ...]:
    """ "8,64" -> (8, 64), in rising order; a ValueError says what the text must be."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and len(word) <= 7 and 1 <= int(word) <= LARGEST for word in words):
        raise ValueError(f"whole numbers from 1 to {LARGEST}, separated by commas, as 8,64,512")
    return tuple(sorted({int(word) for word in words}))


def _checked(text: str) -> str:
    device_counts(text)
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """Prediction."""

    num_devices: str = option("", "predict for these numbers of devices", parse=_checked, shown="N,...")
    series: str = option("", "only series whose names contain this text (default: all)")
    links: Path | None = option(None, "links.json of ./run.sh links: measured links of one machine", shown="FILE")
    link_gbit: float | None = option(
        None, "rate of the links between devices, or between machines, in Gbit/s", minimum=1e-6, maximum=1e9
    )
    latency_us: float | None = option(
        None, "latency of a message on those links, in microseconds (default: 0)", minimum=0, maximum=1e9
    )
    devices_per_machine: int | None = option(
        None, "devices in a machine; beyond it the exchange uses the links between machines", minimum=1, maximum=LARGEST
    )
    output: Path | None = option(None, "folder for the files (default: no files)", shown="DIR")
    format: str = option("text", "what is printed", choices=("text", "json"))

    @property
    def devices(self) -> tuple[int, ...]:
        """The numbers of devices in rising order; empty if the flag is not given."""
        return device_counts(self.num_devices) if self.num_devices else ()

    @property
    def stated_link(self) -> Link | None:
        """The link that the user states. Raises Refusal for a latency without a rate."""
        from rnn_scaling.analysis.prediction.curves import Link

        if self.link_gbit is None:
            if self.latency_us is not None:
                raise entry.Refusal("--latency_us needs the rate of the same link; add --link_gbit=...")
            return None
        return Link(1e-6 * (self.latency_us or 0.0), 1e9 * self.link_gbit / BITS)


@dataclasses.dataclass(frozen=True)
class FolderSeries:
    """A series of a folder or a table: its curve, and the rows of the curve's points, none for a table."""

    curve: Curve
    rows: tuple[Row, ...] = ()
    refusal: Statement | None = None  # why it cannot be predicted
    assumed: tuple[Statement, ...] = ()  # by the reading of its table


def every_series(folder: Path, options: PredictionOptions) -> list[FolderSeries]:
    """All series of a folder's runs; warns about files that are left out. Raises Refusal if there are none."""
    from rnn_scaling.analysis.machines import by_machine
    from rnn_scaling.analysis.prediction import from_rows
    from rnn_scaling.analysis.rows import with_baselines
    from rnn_scaling.links import stored
    from rnn_scaling.records import folder as folders

    stated = options.stated_link  # wrong flags are reported before thousands of files are read
    links = from_rows.Links(stored.read(options.links) if options.links else {}, stated, options.devices_per_machine)
    try:
        content = folders.read(folder)
    except OSError as e:
        raise entry.Refusal(f"{folder}: {e.strerror or e}") from None
    entry.warn(*(f"{line}; left out" for line in content.left_out))
    machines, made = by_machine([file.record for file in content.runs]), []
    for machine, records in machines.items():
        found = from_rows.series(with_baselines(records), links)
        for (curve, rows), refusal in zip(found, from_rows.refusals(found, stated)):
            name = f"{curve.name}, {machine}" if len(machines) > 1 else curve.name
            made.append(FolderSeries(dataclasses.replace(curve, name=name, source=str(folder)), rows, refusal))
    if not made:
        reason = "no run measured a rate" if content.runs else f"{content.nothing}{folders.elsewhere(folder)}"
        raise entry.Refusal(f"{folder}: {reason}")
    return made


def chosen(names: Sequence[str], text: str) -> set[str]:
    """The names that contain the text of --series. Raises Refusal if none does."""
    kept = {name for name in names if text.lower() in name.lower()}
    if not kept:
        raise entry.Refusal(f"--series={text} is in no name of a series; there are: {'; '.join(names[:5])}")
    return kept
