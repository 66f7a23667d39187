"""Turn a user's command and lists of values into the runs of a sweep.

The values that differ between runs are num_devices, other options of this suite, and
the user's axes. Pure, but the program must exist.

`sweep` and `ab` call `plan` if --trainer is given.
"""

import dataclasses
import difflib
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.config import flags
from rnn_scaling.config.conditions import FOREIGN_NOT_COMPARED
from rnn_scaling.config.naming import HOW_RUN, TRAINER
from rnn_scaling.config.spelling import spell
from rnn_scaling.records.importers.rank_tags import Ranks
from rnn_scaling.records.importers.reading import Terms
from rnn_scaling.sweeps import placeholders
from rnn_scaling.sweeps.axes import (
    AXIS,
    DEVICE_OPTIONS,
    check_values,
    find_broken_rule,
    parse_value,
)
from rnn_scaling.sweeps.estimate import Identity
from rnn_scaling.sweeps.placeholders import REPEAT, RESULT_FILE
from rnn_scaling.sweeps.plan import list_device_counts, make_names_distinct, name_part
from rnn_scaling.sweeps.program_options import (
    PRODUCTS,
    TrainerOptions,
    check_log_options,
)
from rnn_scaling.sweeps.runs import AnyRun

_COPIES_MODE = "independent"  # the mode of a run whose processes exchange nothing
COMMAND = "trainer_command"  # the option with the command and its places
Lists = Mapping[str, Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class ProgramRun(AnyRun):
    """A run of a program of the user."""

    config: Mapping[str, Any]  # the options that its record contains
    # The text of each place except REPEAT and RESULT_FILE.
    texts: Mapping[str, str]
    terms: Terms = Terms()  # how its output is read
    # Processes of the command for one device that exchange nothing; 0 if the run is
    # one process on all devices.
    num_copies: int = 0

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.config)

    @property
    def unit(self) -> str:
        return str(self.config.get("unit") or "items")

    def identify(self, config: Mapping[str, Any]) -> Identity:
        """Return the options of the run, and how its numbers were read."""
        names = dict.fromkeys([*self.config, *HOW_RUN])
        return tuple((name, config.get(name)) for name in names)

    @property
    def template(self) -> str:
        """The command with its places."""
        return str(self.config[COMMAND])

    @property
    def num_devices(self) -> int:
        return int(self.config["num_devices"])

    @property
    def num_cores(self) -> int | None:
        """The cores of the run; None if it runs on GPUs and may use all cores."""
        if self.config["device"] != "cpu":
            return None
        return self.num_devices * int(self.config["cpu_cores_per_device"])


def plan(
    options: TrainerOptions,
    axes: Mapping[str, Sequence[str]],
    lists: Lists,
    *,
    num_gpus: int,
    num_cores: int,
) -> list[ProgramRun]:
    """Return the configurations of a sweep, in order.

    Args:
      options: The options of the program.
      axes: The values of each axis.
      lists: The values of options of this suite.
      num_gpus: GPUs of this machine.
      num_cores: Cores of this machine.

    Raises:
      FlagErrors: If anything is wrong; it names everything.
    """
    device_lists, lines = _choose_devices(lists, num_gpus, num_cores)
    lines += _check_lists(axes, lists)
    lines += check_values(axes)
    lines += _check_places(options, axes, lists)
    lines += check_log_options(options)
    lines += _check_split(options, lists)
    if lines:
        raise flags.FlagErrors(lines)
    values: dict[str, Sequence[Any]] = {**lists, **device_lists, **axes}
    varied_options = []
    for name, options_values in values.items():
        if len(options_values) > 1 and name != "num_devices":
            varied_options.append(name)
    runs: dict[Identity, ProgramRun] = {}
    for combination in itertools.product(*values.values()):
        run = _make_run(options, dict(zip(values, combination)), varied_options, axes)
        _check_run(run, options)
        runs[run.identity] = run
        if options.split:
            copies = _make_copies(run, options)
            runs[copies.identity] = copies
    return make_names_distinct(list(runs.values()))


def _choose_devices(
    lists: Lists, num_gpus: int, num_cores: int
) -> tuple[dict[str, Sequence[Any]], list[str]]:
    """Return the values of the device options, and the mistakes in them."""
    devices = lists.get("device", ["auto"])
    on_gpus = devices[0] == "gpu" or (devices[0] == "auto" and num_gpus > 0)
    cores = lists.get("cpu_cores_per_device", [1])
    max_devices = max(1, num_cores // max(1, cores[0]))
    if on_gpus:
        max_devices = num_gpus
    counts = lists.get("num_devices", list_device_counts(max_devices))
    counts = [count or max_devices for count in counts]
    lines = []
    if len(devices) > 1:
        lines.append(f"--device={','.join(devices)} must be one value")
    if not on_gpus:
        device_values = {
            "num_devices": counts,
            "device": ["cpu"],
            "cpu_cores_per_device": cores,
        }
        return device_values, lines
    if not num_gpus:
        lines.append(
            "--device=gpu needs a visible NVIDIA GPU, found none; use --device=cpu"
        )
    elif "cpu_cores_per_device" in lists:
        lines.append(
            "--cpu_cores_per_device needs --device=cpu; add --device=cpu, or "
            "leave out --cpu_cores_per_device"
        )
    if num_gpus and max(counts) > num_gpus:
        lines.append(
            f"--num_devices={max(counts)} must be at most the number of GPUs "
            f"({num_gpus}); use --device=cpu for CPUs"
        )
    return {"num_devices": counts, "device": ["gpu"]}, lines


def _check_lists(axes: Collection[str], lists: Lists) -> Iterator[str]:
    """Yield the mistakes in the values of this suite's options."""
    for name, values in lists.items():
        for value in values:
            if rule := find_broken_rule(name, value):
                yield f"{spell(name, value)} must be {rule}"
        if name in axes:
            yield f"--{name} and {AXIS}{name} name the same option; give one of them"
        if name in FOREIGN_NOT_COMPARED:
            yield (
                f"--{name} applies only to this suite's trainer; rename yours to "
                f"{AXIS}my_{name}"
            )


def _check_places(
    options: TrainerOptions, axes: Collection[str], lists: Lists
) -> Iterator[str]:
    """Yield a line for each place without an option, and option without a place."""
    places = set(placeholders.find_places(options.trainer))
    names = {*axes, *lists, *DEVICE_OPTIONS}
    known_places = names | {REPEAT, RESULT_FILE}
    for name in sorted(places - known_places):
        place = f"{{{name}}}"
        hint = ""
        if close := difflib.get_close_matches(name, known_places, n=1):
            hint = f" (did you mean {{{close[0]}}}?)"
        yield (
            f"--trainer: {place} is not an option of this sweep{hint}; add "
            f"{AXIS}{name}=VALUE,..., or write {{{place}}} as text"
        )
    for name in (*axes, *lists):
        has_place = name in places or name in DEVICE_OPTIONS
        if has_place or _is_declaration(name, options, lists):
            continue
        flag = f"{AXIS}{name}" if name in axes else f"--{name}"
        hint = (
            f"pass it as a variable with env X={{{name}}} COMMAND if the program reads "
            "one"
        )
        if name == "global_batch_size":
            hint += ", or give one value and --items_per_step to declare strong scaling"
        yield f"{flag}: --trainer has no placeholder {{{name}}}; {hint}"
    for product in PRODUCTS:
        product_places = set(placeholders.find_places(getattr(options, product)))
        for name in sorted(product_places - names):
            yield f"--{product}: {{{name}}} is not an option of this sweep"


def _is_declaration(name: str, options: TrainerOptions, lists: Lists) -> bool:
    """Return whether an option without a place describes what the program does anyway.

    A program with a fixed batch of all devices together scales strongly, and
    --items_per_step usually is a multiple of that batch.
    """
    counts_items = bool(options.items_per_step or options.items)
    return (
        name == "global_batch_size" and counts_items and len(lists.get(name, ())) == 1
    )


def _make_run(
    options: TrainerOptions,
    values: Mapping[str, Any],
    varied_options: Sequence[str],
    axes: Collection[str],
) -> ProgramRun:
    """Return the run of one combination of values."""
    texts = {}
    for name, value in values.items():
        texts[name] = str(value).lower() if isinstance(value, bool) else str(value)

    program = options.trainer_name or placeholders.name_program(options.trainer)
    config: dict[str, Any] = {TRAINER: program}
    for name, value in values.items():
        config[name] = parse_value(name, value) if name in axes else value
    config[COMMAND] = options.trainer
    for name, value in options.list_changes().items():
        if name in HOW_RUN:
            config[name] = value

    name_parts = [name_part(program, "num_devices"), str(values["num_devices"])]
    name_parts += [name_part(values[name], name) for name in varied_options]
    terms = Terms(
        options.log_format,
        options.log_warmup,
        _multiply(options.items_per_step, texts),
        values["num_devices"],
        items=_multiply(options.items, texts),
        unit=options.unit,
        ranks=Ranks(options.ranks) if options.ranks else None,
    )
    return ProgramRun("-".join(name_parts), config, texts, terms)


def _make_copies(run: ProgramRun, options: TrainerOptions) -> ProgramRun:
    """Return the run of uncoupled copies on the same number of devices."""
    texts = {**run.texts, "num_devices": "1"}
    terms = dataclasses.replace(
        run.terms,
        items_per_step=_multiply(options.items_per_step, texts),
        num_devices=1,
        items=_multiply(options.items, texts),
    )
    return ProgramRun(
        f"{run.name}-copies",
        {**run.config, "variable_update": _COPIES_MODE},
        texts,
        terms,
        num_copies=run.num_devices,
    )


def _check_split(options: TrainerOptions, lists: Lists) -> Iterator[str]:
    """Yield the conflicts of --split."""
    if not options.split:
        return
    if "variable_update" in lists:
        yield (
            "--split makes the runs without exchange by itself; leave out "
            "--variable_update"
        )
    if "global_batch_size" in lists:
        yield (
            "--split needs constant work per device, but --global_batch_size divides "
            "one batch; leave one out"
        )


def _multiply(product: str, texts: Mapping[str, str]) -> float | None:
    return placeholders.multiply(product, texts) if product else None


def _check_run(run: ProgramRun, options: TrainerOptions) -> None:
    """Raise FlagErrors if a product is not positive or the command has no program."""
    for name in PRODUCTS:
        product = getattr(options, name)
        if product and not 0 < (getattr(run.terms, name) or 0) < math.inf:
            value = placeholders.fill(product, run.texts)
            raise flags.FlagErrors(
                [f"--{name}={product} is {value}, but must be above 0"]
            )
    program = placeholders.split_words(options.trainer)[0]
    texts = {REPEAT: "1", RESULT_FILE: "x", **run.texts}
    if not placeholders.fill(program, texts):
        raise flags.FlagErrors(
            [
                f"--trainer={options.trainer} must begin with a program, got an empty "
                "value"
            ]
        )
