"""python -m rnn_scaling verify: does a mode train what serial training does?

It only reads flags and prints: `verification` runs and judges both kinds of trainings.
"""

import dataclasses
import os
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rnn_scaling.cluster import launch as launches
from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.cluster.launch import Launch
from rnn_scaling.config import conflicts, flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.flags import option
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.spelling import spell
from rnn_scaling.sweeps import ranks
from rnn_scaling.sweeps.certifying_runs import (
    REFUSED_OPTIONS,
    VERIFIER,
    choose_verification_defaults,
)
from rnn_scaling.sweeps.command_lines import format_flags
from rnn_scaling.sweeps.plan import SINGLE_RUN_OPTIONS
from rnn_scaling.system import entry

USAGE = """\
Is your distributed training in PyTorch, JAX or Keras right? Runs your script on one
process and on several, compares samples, gradients, weights, clipping and random states
at every step, and names the fault (docs/verify.md).

    ./run.sh verify --trainer="python3 my.py" --num_devices=1,2
    ./run.sh verify --trainer="python3 my.py" --reference="--accum=1" \\
        --result_file=certificate.json
    ./run.sh verify --trainer="python3 my_jax.py" --framework=jax
    ./run.sh verify --check=certificate.json    repeats the verdict

Without --trainer: does a mode of this suite train correctly? Trains in that mode and,
batch by batch, serially on one device. Serial training computes the batches of all
towers at the same weights, and makes one update from the mean gradient. Compares losses
and all weights, and prints a verdict such as "equal within 1e-5". "Stale by 1 step" is
right for relaxed and staged modes. A fault is described by its kind (such as a sum
instead of a mean), its variable and tower, and its first batch. With --num_workers,
verify starts its own cluster on this machine.

    ./run.sh verify                             replicated on 2 devices
    ./run.sh verify --variable_update=parameter_server --num_devices=4 \\
        --global_batch_size=30
    ./run.sh verify --variable_update=collective_all_reduce --num_workers=2
    ./run.sh verify --machine --device=gpu --num_devices=0

Accepts the flags of the trainer (./run.sh train --help). Defaults that differ:
--variable_update=replicated --num_devices=2, or --variable_update=collective_all_reduce
with --num_workers; --optimizer=sgd, because Adam hides a factor of the gradient;
--learning_rate=0.5 (0.05 for images, 0.002 without batch normalisation, more if
--max_gradient_norm is below 0.02); 12 batches (--num_warmup_batches=1
--num_batches=11); --random_lengths --ragged_batches; a small network of odd sizes
(--num_units=31). --result_file stores the certificate. ./run.sh sweep --certify
verifies each configuration. docs/verify.md lists what is compared, how closely, and
what is not.

Exit status: 0 the mode or script is right; 1 it is wrong or a process failed; 2 the
flags conflict; 3 cannot tell (only with --trainer); 130 interrupted."""

# Nothing is timed or traced, and every batch is compared.
_REFUSED = ("log_dir", *SINGLE_RUN_OPTIONS, *REFUSED_OPTIONS)

_STARTED = time.perf_counter()


@dataclasses.dataclass(frozen=True)
class VerifyOptions:
    """Verify: the checks, and the defaults that differ."""

    machine: bool = option(
        False,
        "also check kernels, all-reduces, placement and the clock; use it first on a "
        "new machine",
    )


def _check_trainer(text: str) -> str:
    """Return the value of --trainer; a ValueError explains the rule."""
    from rnn_scaling.verification.scripts import script_command

    script_command.parse(text)
    return text


@dataclasses.dataclass(frozen=True)
class ScriptOptions:
    """Script: your own script."""

    trainer: str = option(
        "",
        "command that starts your script as one process; verify starts several, with "
        "the variables of torchrun; {num_devices} is the number of processes",
        parse=_check_trainer,
        shown='"python3 SCRIPT"',
        whole=True,
    )
    reference: str = option(
        "",
        "flags that are added to the command if only one process runs, such "
        "as --accum=1",
        shown="WORDS",
        whole=True,
    )
    num_steps: int = option(
        6, "number of optimizer steps in each run", minimum=1, maximum=10_000
    )
    timeout: float = option(
        120.0, "time limit of each run, in seconds", minimum=1, maximum=86_400
    )
    framework: str = option(
        "torch",
        "framework of the script; a JAX script calls rnn_scaling.hooks.jax.observe, "
        "and a Keras script uses TensorFlow",
        choices=("torch", "jax", "keras"),
    )
    check: str = option(
        "",
        "certificate file whose verdict is repeated from its numbers, without "
        "running the script",
        shown="FILE",
    )


@entry.command
def main(words: Sequence[str], verifier: Sequence[str] = VERIFIER) -> int:
    """Run the command; return its exit status."""
    groups = [ScriptOptions, VerifyOptions, *configs.GROUPS.values()]
    flags.answer(words, USAGE, groups, "verify")
    if _is_about_script(words):
        return _verify_script(words)
    trainer_options, options, mistakes = _split_options(words)
    words = format_flags(trainer_options)
    try:
        launch = launches.detect_launch(
            os.environ,
            trainer_options.get("coordinator_address", ""),
            socket.gethostname(),
        )
        defaults = choose_verification_defaults(
            trainer_options, has_launcher=launch is not None
        )
        if launch is None:
            rank_options, config = conflicts.check_command_line(
                words, mistakes, defaults
            )
            if options.machine and config.num_processes > 1:
                raise entry.Refusal(
                    "--machine checks the devices of one process, but this run has "
                    f"{config.num_processes} processes; leave out --machine"
                )
            if config.num_processes > 1:
                starter = ranks.Starter(verifier)
                return starter.run_here(config, format_flags(rank_options))
        else:
            from rnn_scaling.commands.train import read_configuration

            config, launch = read_configuration(words, defaults)
        return _verify_rank(config, launch, options)
    except ClusterError as e:
        return entry.fail(str(e), status=entry.EXIT_USAGE)


def _verify_rank(
    config: RunConfig, launch: Launch | None, options: VerifyOptions
) -> int:
    """Verify in this process, which is one rank or all; return the exit status."""
    from rnn_scaling.commands.run_files import Notices, RecordFiles
    from rnn_scaling.training import run as training
    from rnn_scaling.verification import session

    check_step = None
    if options.machine:
        check_step = _check_step
        config = dataclasses.replace(
            config, output=dataclasses.replace(config.output, trace_batches=1)
        )
    files = RecordFiles(training.make_rank_config(config, launch).output)
    return session.verify(config, launch, [files, Notices()], _STARTED, check_step)


def _is_about_script(words: Sequence[str]) -> bool:
    """Return whether the options of a script are given."""
    try:
        words = flags.expand_flag_files(words)
    except ValueError:
        return False
    names = {word.lstrip("-").split("=")[0] for word in words if word[:1] == "-"}
    return not names.isdisjoint(flags.collect_fields([ScriptOptions]))


def _verify_script(words: Sequence[str]) -> int:
    """Verify a user's script, or repeat a verdict."""
    own_fields = flags.collect_fields([ScriptOptions])
    shared_options = {
        name: configs.OPTIONS[name] for name in ("num_devices", "result_file")
    }
    values, lines = flags.parse_with_errors(
        words, {**shared_options, **own_fields}, lists=True
    )
    counts = values.pop("num_devices", [1, 2])
    result_file = values.pop("result_file", [""])[0]
    single_values = {}
    for name, chosen_value in values.items():
        if len(chosen_value) > 1:
            lines.append(f"--{name} must be one value, got {len(chosen_value)}")
        single_values[name] = chosen_value[0]
    larger_counts = sorted(set(counts) - {1})
    if len(larger_counts) != 1 or larger_counts[0] < 2:
        counts_text = ",".join(map(str, counts))
        lines.append(
            f"--num_devices={counts_text} must be 1 and one larger number, such as 1,2"
        )
    (options,) = flags.build([ScriptOptions], single_values, lines)
    from rnn_scaling.verification.scripts import session

    if options.check:
        return session.check(options.check)
    if not options.trainer:
        names = ", ".join(f"--{name}" for name in single_values)
        raise entry.Refusal(f'{names}: --trainer="python3 SCRIPT" is missing; add it')
    return session.verify(
        session.ScriptRequest(
            options.trainer,
            num_ranks=larger_counts[0],
            num_steps=options.num_steps,
            reference=options.reference,
            timeout_s=options.timeout,
            result_file=result_file,
            framework=options.framework,
        )
    )


def _check_step(step: Any, engine: Any) -> Iterator[Any]:
    """Yield the checks of a `TrainStep` on the devices of its engine."""
    from rnn_scaling.inspection import step_checks  # loads TensorFlow

    return step_checks.check_step(step, engine)


def _split_options(
    words: Sequence[str],
) -> tuple[dict[str, Any], VerifyOptions, list[str]]:
    """Return the flags of the trainer, the options of verify, and the mistakes."""
    own_fields = flags.collect_fields([VerifyOptions])
    values, lines = flags.parse_with_errors(words, {**configs.OPTIONS, **own_fields})
    own_values = {name: values.pop(name) for name in own_fields if name in values}
    (options,) = flags.build([VerifyOptions], own_values)
    for name in _REFUSED:
        if name in values:
            flag = spell(name, values[name])
            lines.append(
                f"{flag} has no effect, because verify times and traces nothing; leave "
                "it out"
            )
    return values, options, lines
