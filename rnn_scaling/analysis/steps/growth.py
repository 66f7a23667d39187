"""How kernels grow with the length of the sequences: an exact line through counts of runs of several lengths. Pure."""

import dataclasses
import itertools
from collections.abc import Sequence
from fractions import Fraction

from rnn_scaling.analysis.keys import build_key, drop_options
from rnn_scaling.analysis.steps.counts import (
    HOW_MEASURED,
    CountGroup,
    own_decoder,
    varies,
)
from rnn_scaling.records.options import Options

LENGTHS = ("src_max_len", "tgt_max_len")
PARTS = ("all", "forward", "backward")
FEWEST = 2  # lengths that make a line
FEWEST_TO_CHECK = 3  # lengths from which on a line can be false


@dataclasses.dataclass(frozen=True)
class Line:
    """Kernels of a step at some lengths of one side's sentences, the other side's being the same."""

    title: str  # of the groups, without this length
    encoder: str
    num_devices: int
    phase: str
    option: str
    lengths: tuple[int, ...]
    values: tuple[int, ...]

    @property
    def slope(self) -> Fraction:
        """Kernels a position between the first and the last length."""
        return Fraction(
            self.values[-1] - self.values[0], self.lengths[-1] - self.lengths[0]
        )

    @property
    def exact(self) -> bool:
        """Whether every count lies on the line."""
        return all(
            v == self.values[0] + self.slope * (n - self.lengths[0])
            for n, v in zip(self.lengths, self.values)
        )

    @property
    def formula(self) -> str:
        """ "1,234 + 56 T"."""
        start = self.values[0] - self.slope * self.lengths[0]
        return f"{_number(start)} {'-' if self.slope < 0 else '+'} {_number(abs(self.slope))} T"

    @property
    def verdict(self) -> str:
        """The formula where the counts lie on a line; two lengths always do."""
        if len(self.lengths) < FEWEST_TO_CHECK:
            return f"{self.formula} (only two lengths)"
        return self.formula if self.exact else "not linear"


def lines(groups: Sequence[CountGroup]) -> list[Line]:
    """A line for each encoder, number of devices and phase whose runs differ in one side's length alone."""
    grown: dict[tuple, dict[int, tuple[CountGroup, int]]] = {}
    for option, group in itertools.product(LENGTHS, groups):
        if varies(group.options):
            continue  # then sentences have not exactly these lengths
        for encoder, number, phase in itertools.product(
            group.encoders, group.device_counts, PARTS
        ):
            if counts := group.find(encoder, number):
                at = grown.setdefault(
                    (option, _family(group.options, option), encoder, number, phase), {}
                )
                kernels = {"all": counts.kernels, **counts.kernels_by_phase}
                at[group.options[option]] = group, kernels.get(phase, 0)
    made = []
    for (option, _, encoder, number, phase), at in grown.items():
        if len(at) >= FEWEST:
            members, values = zip(*(at[length] for length in sorted(at)))
            words = members[0].title.split(", ")
            title = ", ".join(
                word for word in words if not word.startswith(f"{option}=")
            )
            made.append(
                Line(title, encoder, number, phase, option, tuple(sorted(at)), values)
            )
    return made


def _family(options: Options, option: str) -> tuple:
    """What groups that differ in this length alone have in common."""
    changes = {"encoder_type": "", "decoder_type": "", "num_devices": 1, option: 0}
    return own_decoder(options), drop_options(
        build_key(options, **changes), HOW_MEASURED
    )


def _number(value: Fraction) -> str:
    return f"{value.numerator:,}" if value.denominator == 1 else f"{float(value):,.3f}"
