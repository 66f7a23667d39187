"""python -m rnn_scaling whatif SOURCE: which change of batch, device, exchange, link or jitter would help most."""

from collections.abc import Sequence

from rnn_scaling.commands.prediction_options import WhatifOptions
from rnn_scaling.config import flags
from rnn_scaling.system import entry

USAGE = """\
Says which change would help most: for each change alone and for all together, the rate and the efficiency, with 95 %
intervals, largest gain first.

    ./run.sh whatif results/mine                       no exchange, no jitter, twice the batch, device or link
    ./run.sh whatif results/mine --exchange=half       as gradients in half precision would give
    ./run.sh whatif results/mine --batch_size=2x --compute=1.5x
    ./run.sh whatif results/mine --link_gbit=100 --links=results/links/links.json
    ./run.sh whatif results/mine --num_devices=64 --jitter=none

The folder of runs, or the table, must have one device and another number of devices. Runs with
--variable_update=independent and with a second --batch_size make the intervals much narrower. --link_gbit and
--latency_us are those of a new link; the present one comes from --links or the records. --output writes whatif.json and
whatif.png. docs/whatif.md lists the assumptions.

Exit status: 0 at least one series was answered, 1 a file cannot be written, 2 nothing can be said, or wrong use."""


@entry.command
def main(words: Sequence[str]) -> int:
    options = flags.read(words, USAGE, WhatifOptions, "whatif")
    from rnn_scaling.commands import (
        prediction_results,
    )  # late: help and mistakes do not wait for it

    prediction_results.tell_changes(prediction_results.whatif(options), options)
    return entry.EXIT_OK
