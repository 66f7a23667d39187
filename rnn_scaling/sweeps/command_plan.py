"""A user's command and lists of values -> the runs of a sweep. Pure, but the program must exist.

An axis is an option whose values differ between runs: num_devices, any other of this suite's options, or the user's
own, --axis:NAME=VALUE,... Each has its place, {NAME}, in the command. An axis with the name of an option of this suite
means the same in reports, so its values follow the same rule.
"""

import dataclasses
import difflib
import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.config import flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import NOT_COMPARED_THEIRS
from rnn_scaling.config.flags import option
from rnn_scaling.config.naming import HOW_RUN, THEIRS, TRAINER
from rnn_scaling.config.spelling import spell
from rnn_scaling.records.importers.rank_tags import Ranks
from rnn_scaling.records.importers.reading import AUTO, WALL, Terms
from rnn_scaling.sweeps import template
from rnn_scaling.sweeps.estimate import Identity
from rnn_scaling.sweeps.plan import device_counts, with_distinct_names, word
from rnn_scaling.sweeps.runs import AnyRun

AXIS = "--axis:"
REPEAT, RESULT_FILE = "repeat", "result_file"  # places that every run has
PRODUCTS = ("items_per_step", "items")
PLACED = (
    "device",
    "cpu_cores_per_device",
    "num_devices",
)  # a run also sees these in its cores and GPUs


def _checked_formats(text: str) -> str:
    """Return the value of --log_format; raises ValueError, saying what it must be."""
    from rnn_scaling.records.importers import importing

    return importing.check_rate_formats(text)


@dataclasses.dataclass(frozen=True)
class TrainerOptions:
    """Trainer: a program of your own (docs/any_trainer.md)."""

    trainer: str = option(
        "",
        "command of one run, with places: {num_devices}, {repeat}, {result_file} for the record of a Recorder, and "
        "{NAME} for each --axis:NAME=VALUE,... or other flag; runs without a shell; {{ is a brace",
        parse=template.checked,
        shown='"COMMAND {num_devices}"',
        whole=True,
    )
    trainer_name: str = option(
        "", "name in reports (default: its script, module or program)"
    )
    log_format: str = option(
        AUTO,
        "format of its output if it writes no record: formats to try (auto: all); the last may be regex:PATTERN with "
        "the groups rate | items and seconds or ms | step alone (timed by the arrival of lines), and loss, total; "
        "{number} reads any number; wall times the whole process",
        parse=_checked_formats,
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
        "items of a step on all devices, if the log has only steps or seconds: a product such as "
        "35*{batch_size}*{num_devices}",
        parse=template.factors,
        shown="PRODUCT",
    )
    items: str = option(
        "",
        "items of a whole run on all devices, for --log_format=wall: a product",
        parse=template.factors,
        shown="PRODUCT",
    )
    unit: str = option(
        "", "what the trainer counts, in the plural (default: from its record or log)"
    )


@dataclasses.dataclass(frozen=True)
class CommandRun(AnyRun):
    config: Mapping[str, Any]  # its options as they stand in its record
    texts: Mapping[str, str]  # what stands for each place but REPEAT and RESULT_FILE
    terms: Terms = Terms()  # how its output is read

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.config)

    @property
    def unit(self) -> str:
        return str(self.config.get("unit") or "items")

    def identity_of(self, config: Mapping[str, Any]) -> Identity:
        """The values of its options, and how its numbers were read."""
        return tuple(
            (name, config.get(name)) for name in dict.fromkeys([*self.config, *HOW_RUN])
        )

    @property
    def num_devices(self) -> int:
        return int(self.config["num_devices"])

    @property
    def num_cores(self) -> int | None:
        """Cores that it gets; None: it runs on GPUs and may use all."""
        return (
            self.num_devices * int(self.config["cpu_cores_per_device"])
            if self.config["device"] == "cpu"
            else None
        )


def split_axes(words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """(values of each --axis:NAME, the other words of a command line, its flag files read)."""
    try:
        words = flags.expanded(words)
    except ValueError as e:
        raise flags.FlagErrors([str(e)]) from None
    axes: dict[str, list[str]] = {}
    lines, placed = [], []
    names = [
        text.partition("=")[0].removeprefix(AXIS).lstrip("-")
        for text in words
        if text[:1] == "-"
    ]
    for flag in filter(_is_axis, words):
        name, equals, values = flag.removeprefix(AXIS).partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or not equals:
            lines.append(
                f"{flag} must be {AXIS}NAME=VALUE,..., NAME being letters, digits and _"
            )
        elif name in (*PLACED, *flags.ALIASES):
            placed.append(f"--{name}={values}")
            lines += (
                [f"{flag}: {name} is given twice; give all values at once"]
                if names.count(name) > 1
                else []
            )
        elif name in (TRAINER, REPEAT, RESULT_FILE, *NOT_COMPARED_THEIRS):
            lines.append(
                f"{flag}: {name} is reserved; choose another name, as {AXIS}my_{name}"
            )
        elif name in axes:
            lines.append(
                f"{flag}: {AXIS}{name} is given twice; give all values at once"
            )
        else:
            axes[name] = list(dict.fromkeys(values.split(",")))
            wrong = [line for text in axes[name] for line in _faults(name, text)]
            lines += [f"{flag}: {line}" for line in wrong[:1]]
    if lines:
        raise flags.FlagErrors(lines)
    return axes, [*(text for text in words if not _is_axis(text)), *placed]


def _is_axis(text: str) -> bool:
    return text.startswith(AXIS)


def _faults(name: str, text: str) -> list[str]:
    """What is wrong with a value of an axis that has the name of an option of this suite."""
    if name not in configs.OPTIONS:
        return []
    try:
        rule = _broken_rule(name, _value(name, text))
        wrong = f"{text} must be {rule}" if rule else ""
    except flags.FlagErrors as e:
        wrong = e.lines[0].removeprefix(f"--{name}=")
    return (
        [f"{wrong}, like this suite's --{name}; or rename it, as {AXIS}my_{name}"]
        if wrong
        else []
    )


def _value(name: str, text: str) -> Any:
    """A value of an axis as records hold it: a number if it reads as one, else as the option of that name parses it."""
    if name not in configs.OPTIONS:
        return number(text)
    return flags.parse([f"--{name}={text}"], {name: configs.OPTIONS[name]})[name]


def _broken_rule(name: str, value: Any) -> str:
    """The rule of this suite's option that a value breaks; empty: none."""
    return "" if name in THEIRS else flags.broken_rule(configs.OPTIONS[name], value)


def missing_trainer(options: TrainerOptions, axes: Mapping[str, Any]) -> list[str]:
    """Options of a command that are given without --trainer, a line each."""
    given = [
        field.name
        for field in dataclasses.fields(options)
        if getattr(options, field.name) != field.default
    ]
    rule = 'is for a trainer of your own: --trainer="COMMAND"'
    return [f"--{name} {rule}" for name in given] + [
        f"{AXIS}{name} {rule}" for name in axes
    ]


def plan(
    options: TrainerOptions,
    axes: Mapping[str, Sequence[str]],
    lists: Mapping[str, Sequence[Any]],
    *,
    num_gpus: int,
    num_cores: int,
) -> list[CommandRun]:
    """The configurations of a sweep, in order. Raises FlagErrors naming everything that is wrong."""
    given, lines = _with_devices(lists, num_gpus, num_cores)
    lines += [
        *_list_problems(axes, lists),
        *_axis_problems(axes),
        *_place_problems(options, axes, lists),
        *_log_problems(options),
    ]
    if lines:
        raise flags.FlagErrors(lines)
    values: dict[str, Sequence[Any]] = {**given, **axes}
    varied = [
        name
        for name, found in values.items()
        if len(found) > 1 and name != "num_devices"
    ]
    combinations = (
        dict(zip(values, combination))
        for combination in itertools.product(*values.values())
    )
    runs = [_run(options, combination, varied, axes) for combination in combinations]
    for name in PRODUCTS:
        product = getattr(options, name)
        wrong = [
            run
            for run in runs
            if product and not 0 < (getattr(run.terms, name) or 0) < math.inf
        ]
        if wrong:
            filled = template.fill(product, wrong[0].texts)
            raise flags.FlagErrors(
                [f"--{name}={product} is {filled}; it must be above 0"]
            )
    program = template.words_of(options.trainer)[0]
    if not all(
        template.fill(program, {REPEAT: "1", RESULT_FILE: "x", **run.texts})
        for run in runs
    ):
        raise flags.FlagErrors(
            [
                f"--trainer={options.trainer} must begin with a program, got an empty value"
            ]
        )
    return with_distinct_names(list({run.identity: run for run in runs}.values()))


def _with_devices(
    lists: Mapping[str, Sequence[Any]], num_gpus: int, num_cores: int
) -> tuple[dict[str, Sequence[Any]], list[str]]:
    """(the lists with the devices that count where none are given, what is wrong with them)."""
    device = lists.get("device", ["auto"])
    on_gpus = device[0] == "gpu" or (device[0] == "auto" and num_gpus > 0)
    cores = lists.get("cpu_cores_per_device", [1])
    most = num_gpus if on_gpus else max(1, num_cores // max(1, cores[0]))
    numbers = [
        number or most for number in lists.get("num_devices", device_counts(most))
    ]
    lines = []
    if len(device) > 1:
        lines.append(f"--device={','.join(device)} must be one value")
    if on_gpus and not num_gpus:
        lines.append(
            "--device=gpu needs a visible NVIDIA GPU, found none; use --device=cpu"
        )
    elif on_gpus and "cpu_cores_per_device" in lists:
        lines.append(
            "--cpu_cores_per_device needs --device=cpu; add it, or leave this out"
        )
    if on_gpus and num_gpus and max(numbers) > num_gpus:
        lines.append(
            f"--num_devices={max(numbers)} must be at most the {num_gpus} GPUs; use --device=cpu for CPUs"
        )
    placed: dict[str, Sequence[Any]] = {
        "num_devices": numbers,
        "device": ["gpu" if on_gpus else "cpu"],
    }
    return {
        **lists,
        **placed,
        **({} if on_gpus else {"cpu_cores_per_device": cores}),
    }, lines


def _list_problems(
    axes: Mapping[str, Any], lists: Mapping[str, Sequence[Any]]
) -> Iterator[str]:
    """What is wrong with the values of this suite's options."""
    for name, values in lists.items():
        for value in values:
            if rule := _broken_rule(name, value):
                yield f"{spell(name, value)} must be {rule}"
        if name in axes:
            yield f"--{name} and {AXIS}{name} name the same option; give one of them"
        if name in NOT_COMPARED_THEIRS:
            yield f"--{name} is for this suite's trainer; rename yours, as {AXIS}my_{name}"


def _axis_problems(axes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Values that are one number, as 1.1 and 1.10."""
    for name, texts in axes.items():
        for first, second in itertools.combinations(texts, 2):
            if number(first) == number(second):
                yield f"{AXIS}{name}: {first} and {second} are the same number; leave one out"


def _place_problems(
    options: TrainerOptions, axes: Collection[str], lists: Mapping[str, Sequence[Any]]
) -> Iterator[str]:
    """Places without an option, and options without a place."""
    places, names = set(template.places(options.trainer)), {*axes, *lists, *PLACED}
    for name in sorted(places - names - {REPEAT, RESULT_FILE}):
        place, close = (
            f"{{{name}}}",
            difflib.get_close_matches(name, names | {REPEAT, RESULT_FILE}, n=1),
        )
        meant = f" (did you mean {{{close[0]}}}?)" if close else ""
        remedy = f"add {AXIS}{name}=VALUE,..., or write {{{place}}} as text"
        yield f"--trainer: {place} is not an option of this sweep{meant}; {remedy}"
    for name in (*axes, *lists):
        if name in {*places, *PLACED} or _is_declared(name, options, lists):
            continue
        flag = f"{AXIS if name in axes else '--'}{name}"
        hint = (
            f"pass it as a variable with env X={{{name}}} COMMAND if the program "
            "reads one"
        )
        if name == "global_batch_size":
            hint += ", or give one value and --items_per_step to declare strong scaling"
        yield f"{flag}: --trainer has no place {{{name}}} for it; {hint}"
    for product in PRODUCTS:
        for name in sorted(set(template.places(getattr(options, product))) - names):
            yield f"--{product}: {{{name}}} is not an option of this sweep"


def _is_declared(
    name: str, options: TrainerOptions, lists: Mapping[str, Sequence[Any]]
) -> bool:
    """Return whether an option without a place says what the program does anyway.

    A program with a fixed batch of all devices together scales strongly, and
    --items_per_step usually is a multiple of that batch.
    """
    counts_items = bool(options.items_per_step or options.items)
    return (
        name == "global_batch_size" and counts_items and len(lists.get(name, ())) == 1
    )


def _log_problems(options: TrainerOptions) -> Iterator[str]:
    """What --log_format needs, and what needs it."""
    from rnn_scaling.records.importers import importing

    has_no_items = importing.lacks_items(options.log_format)
    if has_no_items and not options.items_per_step:
        yield "--log_format reads only steps or seconds; add --items_per_step=PRODUCT (1 counts steps)"
    if (
        options.items_per_step
        and not has_no_items
        and AUTO not in options.log_format.split(",")
    ):
        yield "--items_per_step is for a --log_format that reads only steps or seconds"
    if options.ranks == Ranks.SUM and options.items_per_step:
        rule = "--items_per_step counts the items of all devices already"
        yield f"--ranks=sum adds printed rates or items, but {rule}; leave one out"
    if (options.log_format == WALL) != bool(options.items):
        yield "--items=PRODUCT and --log_format=wall need each other: the items of a whole run, and its seconds"


def _run(
    options: TrainerOptions,
    values: Mapping[str, Any],
    varied: Sequence[str],
    axes: Collection[str],
) -> CommandRun:
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
    }
    how_run = [field for field in dataclasses.fields(options) if field.name in HOW_RUN]
    config = {
        TRAINER: options.trainer_name or template.program(options.trainer),
        **{
            name: _value(name, value) if name in axes else value
            for name, value in values.items()
        },
        "trainer_command": options.trainer,
        **{
            field.name: value
            for field in how_run
            if (value := getattr(options, field.name)) != field.default
        },
    }
    words = [
        word(config[TRAINER], "num_devices"),
        str(values["num_devices"]),
        *(word(values[n], n) for n in varied),
    ]
    step, whole = (
        template.product(text, texts) if text else None
        for text in (options.items_per_step, options.items)
    )
    terms = Terms(
        options.log_format,
        options.log_warmup,
        step,
        values["num_devices"],
        items=whole,
        unit=options.unit,
        ranks=Ranks(options.ranks) if options.ranks else None,
    )
    return CommandRun("-".join(words), config, texts, terms)


def number(text: str) -> int | float | str:
    """A text as a number where it reads as a finite one."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if math.isfinite(value):
            return value
    return text
