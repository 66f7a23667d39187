"""Fit lines to the kernels of runs with several sequence lengths.

Counts have no noise, so every count must lie exactly on the line.

`reports.counts_report` shows the lines; their field names are keys of inspect.json.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction

from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.keys import build_key, drop_options
from rnn_scaling.analysis.steps.counts import (
    MEASURE_OPTIONS,
    CountGroup,
    has_varying_lengths,
    own_decoder,
)
from rnn_scaling.records.options import Options

LENGTHS = ("src_max_len", "tgt_max_len")
PHASES = ("all", "forward", "backward")


@dataclasses.dataclass(frozen=True)
class Line:
    """Kernels per step at several lengths of one side's sentences."""

    title: str  # the title of the groups, without this length
    encoder: str
    num_devices: int
    phase: str
    option: str  # the length that differs
    lengths: tuple[int, ...]
    values: tuple[int, ...]

    @property
    def slope(self) -> Fraction:
        """Kernels per position between the first and the last length."""
        rise = self.values[-1] - self.values[0]
        return Fraction(rise, self.lengths[-1] - self.lengths[0])

    @property
    def start(self) -> Fraction:
        """The kernels at length 0."""
        return self.values[0] - self.slope * self.lengths[0]

    @property
    def is_exact(self) -> bool:
        """Whether every count lies on the line."""
        expected = [self.start + self.slope * length for length in self.lengths]
        return list(self.values) == expected


def fit_lines(groups: Sequence[CountGroup]) -> list[Line]:
    """Return a line for each encoder, number of devices and phase.

    Its runs differ only in the length of one side's sentences.
    """
    # The sentences of other groups do not have exactly the lengths of their options.
    groups = [group for group in groups if not has_varying_lengths(group.options)]
    growth_lines: list[Line] = []
    for option in LENGTHS:
        families = group_by(
            groups, [_make_family_key(group.options, option) for group in groups]
        )
        for family in families.values():
            growth_lines += _find_family_lines(option, family)
    return growth_lines


def _find_family_lines(option: str, family: Sequence[CountGroup]) -> Iterator[Line]:
    """Yield the lines of groups that differ only in one length."""
    by_length = {group.options[option]: group for group in family}
    first = by_length[min(by_length)]
    parts = first.title.split(", ")
    title = ", ".join([part for part in parts if not part.startswith(f"{option}=")])
    counts = itertools.chain.from_iterable(group.counts for group in family)
    configurations = {(each.encoder, each.num_devices) for each in counts}
    for encoder, num_devices in sorted(configurations):
        points = {}
        for length, group in sorted(by_length.items()):
            if encoder_counts := group.find(encoder, num_devices):
                points[length] = {
                    "all": encoder_counts.kernels,
                    **encoder_counts.kernels_by_phase,
                }
        if len(points) < 2:
            continue
        for phase in PHASES:
            values = tuple([kernels.get(phase, 0) for kernels in points.values()])
            yield Line(
                title,
                encoder=encoder,
                num_devices=num_devices,
                phase=phase,
                option=option,
                lengths=tuple(points),
                values=values,
            )


def _make_family_key(options: Options, option: str) -> tuple:
    """Return a key that groups share if they differ only in this length."""
    changes = {"encoder_type": "", "decoder_type": "", "num_devices": 1, option: 0}
    key = build_key(options, **changes)
    return own_decoder(options), drop_options(key, MEASURE_OPTIONS)
