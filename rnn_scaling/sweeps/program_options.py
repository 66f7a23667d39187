"""The options of a sweep over a program of the user.

`sweep` and `ab` read these flags.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from rnn_scaling.config.flags import option
from rnn_scaling.records.importers.rank_tags import Ranks
from rnn_scaling.records.importers.reading import AUTO, WALL
from rnn_scaling.sweeps import placeholders
from rnn_scaling.sweeps.axes import AXIS

PRODUCTS = ("items_per_step", "items")


def _check_formats(text: str) -> str:
    """Return the value of --log_format; a ValueError explains the rule."""
    from rnn_scaling.records.importers import importing

    return importing.check_rate_formats(text)


@dataclasses.dataclass(frozen=True)
class TrainerOptions:
    """Trainer: a program of your own (docs/any_trainer.md)."""

    trainer: str = option(
        "",
        "command of one run, with placeholders: {num_devices}, {repeat}, {result_file} "
        "for the record of a Recorder, and {NAME} for each --axis:NAME=VALUE,... or "
        "other flag; runs without a shell; {{ is a brace",
        parse=placeholders.check_command,
        shown='"COMMAND {num_devices}"',
        whole=True,
    )
    trainer_name: str = option(
        "", "name of the program in reports (default: its script, module or program)"
    )
    log_format: str = option(
        AUTO,
        "formats to try for the output of a program that writes no record (auto: all "
        "formats; wall: time the whole process). The last may be regex:PATTERN. Groups "
        "of the pattern: rate, or items with seconds or ms, or only step (timed by the "
        "arrival of its lines); also loss and total. {number} matches any number",
        parse=_check_formats,
        shown="FORMAT,...",
        whole=True,
    )
    log_warmup: int | None = option(
        None,
        "number of matches of the pattern to leave out at the start, if more follow "
        "(default: the matches of the start-up)",
        minimum=0,
    )
    ranks: str | None = option(
        None,
        "which rate counts if several ranks print one: the rate of the first rank, or "
        "their sum (default: first; in formats that print each rank's own tokens, sum)",
        choices=tuple(choice.value for choice in Ranks),
    )
    items_per_step: str = option(
        "",
        "items per step on all devices, if the log contains only steps or seconds: "
        "a product such as 35*{batch_size}*{num_devices}",
        parse=placeholders.check_product,
        shown="PRODUCT",
    )
    items: str = option(
        "",
        "items per run on all devices, for --log_format=wall: a product such "
        "as 1000*{num_devices}",
        parse=placeholders.check_product,
        shown="PRODUCT",
    )
    unit: str = option(
        "",
        "the items that the trainer counts, in the plural, such as words (default: "
        "from its record or log)",
    )

    certificate: str = option(
        "",
        "certificate of the program from verify --trainer --result_file=FILE: its "
        "verdict is shown next to the speed, and a wrong program is not ranked",
        shown="FILE",
        whole=True,
    )
    split: bool = option(
        False,
        "also run copies of the command for one device, which exchange nothing: the "
        "report then splits the efficiency loss into contention and the rest",
    )

    def list_changes(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by name."""
        values = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                values[field.name] = value
        return values


def check_without_program(
    options: TrainerOptions, axes: Mapping[str, Any]
) -> list[str]:
    """Return a line for each option that needs --trainer, which is not given."""
    flag_names = [f"--{name}" for name in options.list_changes()]
    flag_names += [f"{AXIS}{name}" for name in axes]
    rule = 'applies only to your own trainer; add --trainer="COMMAND"'
    return [f"{flag} {rule}" for flag in flag_names]


def check_log_options(options: TrainerOptions) -> Iterator[str]:
    """Yield the conflicts between --log_format and the options that it needs."""
    from rnn_scaling.records.importers import importing

    has_no_items = importing.lacks_items(options.log_format)
    if has_no_items and not options.items_per_step:
        yield (
            "--log_format reads only steps or seconds; add --items_per_step=PRODUCT (1 "
            "counts steps)"
        )
    is_auto = AUTO in options.log_format.split(",")
    if options.items_per_step and not has_no_items and not is_auto:
        yield (
            "--items_per_step needs a --log_format that reads only steps or seconds; "
            "leave one out"
        )
    if options.ranks == Ranks.SUM and options.items_per_step:
        yield (
            "--ranks=sum adds printed rates or items, but --items_per_step counts the "
            "items of all devices already; leave one out"
        )
    if (options.log_format == WALL) != bool(options.items):
        yield (
            "--items=PRODUCT and --log_format=wall need each other, as the items and "
            "the seconds of a whole run; give both or neither"
        )
