"""python -m rnn_scaling verify: does a mode train what serial training does? Batch by batch."""

import dataclasses
import os
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rnn_scaling.cluster import launch as launches
from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.config import conflicts, flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.flags import option
from rnn_scaling.config.spelling import spell
from rnn_scaling.sweeps import ranks
from rnn_scaling.sweeps.certificates import (
    TIMING,
    VERIFIER,
    verification_defaults,
)
from rnn_scaling.sweeps.command_lines import flag_words
from rnn_scaling.sweeps.plan import SINGLE_RUN_OPTIONS
from rnn_scaling.system import entry

USAGE = """\
Does a mode train correctly? Trains in that mode and, batch by batch, serially on one device: the batches of all towers
at the same weights, one update from the mean gradient. Compares losses and all weights, and prints a verdict such as
"equal within 1e-5", "stale by 1 step" (as relaxed and staged modes promise), or the fault: "sum" where a mean is
expected, which variable, which tower, from which batch.

    ./run.sh verify                                                 replicated on 2 devices
    ./run.sh verify --variable_update=parameter_server --num_devices=4 --global_batch_size=30
    ./run.sh verify --variable_update=collective_all_reduce --num_workers=2     starts its own cluster here
    ./run.sh verify --machine --device=gpu --num_devices=0          run this first on a new machine

Accepts the flags of the trainer (./run.sh train --help). Defaults that differ: --variable_update=replicated
--num_devices=2, or --variable_update=collective_all_reduce with --num_workers; --optimizer=sgd, because Adam hides a
factor of the gradient; --learning_rate=0.5 (0.05 for images, 0.002 without batch normalisation, more if
--max_gradient_norm is below 0.02); 12 batches (--num_warmup_batches=1 --num_batches=11); --random_lengths; a small
network (--num_units=32). --result_file stores the certificate. ./run.sh sweep --certify verifies each configuration.
docs/verify.md lists what is compared, how closely, and what is not.

Exit status: 0 the mode does what it promises, 1 it does not, or a process failed, 2 the flags conflict,
130 interrupted."""

# Nothing is timed or traced, and every batch is compared.
REFUSED = ("log_dir", *SINGLE_RUN_OPTIONS, *TIMING)

_STARTED = time.perf_counter()


@dataclasses.dataclass(frozen=True)
class VerifyOptions:
    """Verify: the checks, and the defaults that differ."""

    machine: bool = option(
        False,
        "also check kernels, all-reduces, placement and the clock; use it first on a new machine",
    )


@entry.command
def main(words: Sequence[str], verifier: Sequence[str] = VERIFIER) -> int:
    """Run the command; return its exit status."""
    groups = [VerifyOptions, *configs.GROUPS.values()]
    flags.answer(words, USAGE, groups, "verify")
    trainer_options, options, mistakes = _split_options(words)
    words = flag_words(trainer_options)
    try:
        launch = launches.of(
            os.environ,
            trainer_options.get("coordinator_address", ""),
            socket.gethostname(),
        )
        defaults = verification_defaults(
            trainer_options, has_launcher=launch is not None
        )
        if launch is None:
            rank_options, config = conflicts.checked(words, mistakes, defaults)
            if options.machine and config.num_processes > 1:
                raise entry.Refusal(
                    "--machine checks the devices of one process, got "
                    f"{config.num_processes}"
                )
            if config.num_processes > 1:
                return ranks.Starter(verifier).run_here(
                    config, flag_words(rank_options)
                )
        else:
            from rnn_scaling.commands.train import configuration

            config, launch = configuration(words, defaults)
        from rnn_scaling.commands.run_files import Notices, RecordFiles
        from rnn_scaling.training import run as training
        from rnn_scaling.verification import session

        if options.machine:
            config = dataclasses.replace(
                config, output=dataclasses.replace(config.output, trace_batches=1)
            )
        files = RecordFiles(training.config_of_rank(config, launch).output)
        check_step = _check_step if options.machine else None
        return session.verify(config, launch, [files, Notices()], _STARTED, check_step)
    except ClusterError as e:
        return entry.fail(str(e), status=entry.EXIT_USAGE)


def _check_step(step: Any, engine: Any) -> Iterator[Any]:
    """Yield the checks of a `TrainStep` on the devices of its engine."""
    from rnn_scaling.inspection import step_checks  # loads TensorFlow

    return step_checks.checks(step, engine)


def _split_options(
    words: Sequence[str],
) -> tuple[dict[str, Any], VerifyOptions, list[str]]:
    """Return the flags of the trainer, the options of verify, and the mistakes."""
    own_fields = flags.fields([VerifyOptions])
    values, lines = flags.parsed(words, {**configs.OPTIONS, **own_fields})
    own_values = {name: values.pop(name) for name in own_fields if name in values}
    (options,) = flags.build([VerifyOptions], own_values)
    for name in REFUSED:
        if name in values:
            flag = spell(name, values[name])
            lines.append(f"{flag}: nothing is timed or traced here; leave it out")
    return values, options, lines
