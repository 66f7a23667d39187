"""The options of a sweep over a program of the user."""

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
    """Return the value of --log_format; a ValueError says what it must be."""
    from rnn_scaling.records.importers import importing

    return importing.check_rate_formats(text)


@dataclasses.dataclass(frozen=True)
class TrainerOptions:
    """Trainer: a program of your own (docs/any_trainer.md)."""

    trainer: str = option(
        "",
        "command of one run, with places: {num_devices}, {repeat}, {result_file} for the "
        "record of a Recorder, and {NAME} for each --axis:NAME=VALUE,... or other flag; "
        "runs without a shell; {{ is a brace",
        parse=placeholders.check_command,
        shown='"COMMAND {num_devices}"',
        whole=True,
    )
    trainer_name: str = option(
        "", "name in reports (default: its script, module or program)"
    )
    log_format: str = option(
        AUTO,
        "format of its output if it writes no record: formats to try (auto: all); the "
        "last may be regex:PATTERN with the groups rate | items and seconds or ms | step "
        "alone (timed by the arrival of lines), and loss, total; {number} reads any "
        "number; wall times the whole process",
        parse=_check_formats,
        shown="FORMAT,...",
        whole=True,
    )
    log_warmup: int | None = option(
        None,
        "first matches of the pattern to leave out, if more follow (default: those "
        "that are start-up)",
        minimum=0,
    )
    ranks: str | None = option(
        None,
        "which rate counts if several ranks print one: the first rank's, or their sum "
        "(default: first; in formats that print each rank's own tokens, sum)",
        choices=tuple(choice.value for choice in Ranks),
    )
    items_per_step: str = option(
        "",
        "items of a step on all devices, if the log has only steps or seconds: a product "
        "such as 35*{batch_size}*{num_devices}",
        parse=placeholders.check_product,
        shown="PRODUCT",
    )
    items: str = option(
        "",
        "items of a whole run on all devices, for --log_format=wall: a product",
        parse=placeholders.check_product,
        shown="PRODUCT",
    )
    unit: str = option(
        "", "what the trainer counts, in the plural (default: from its record or log)"
    )

    def changes(self) -> dict[str, Any]:
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
    flag_names = [f"--{name}" for name in options.changes()]
    flag_names += [f"{AXIS}{name}" for name in axes]
    rule = 'is for a trainer of your own: --trainer="COMMAND"'
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
        yield "--items_per_step is for a --log_format that reads only steps or seconds"
    if options.ranks == Ranks.SUM and options.items_per_step:
        yield (
            "--ranks=sum adds printed rates or items, but --items_per_step counts the "
            "items of all devices already; leave one out"
        )
    if (options.log_format == WALL) != bool(options.items):
        yield (
            "--items=PRODUCT and --log_format=wall need each other: the items of a whole "
            "run, and its seconds"
        )
