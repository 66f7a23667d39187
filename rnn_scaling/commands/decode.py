"""python -m rnn_scaling decode: one run that translates, which is the trainer with --decode."""

from collections.abc import Sequence

from rnn_scaling.commands import train
from rnn_scaling.system import entry

USAGE = """\
Translates with a network and reports its speed in tokens and sentences per second, and how long a batch takes. It is
./run.sh train --decode: the models are nmt, nmt_attention and transformer, and a beam of 1 is greedy search.

    ./run.sh decode
    ./run.sh decode --model=transformer --beam_size=4 --batch_size=16
    ./run.sh decode --checkpoint_dir=FOLDER --beam_size=4     with the weights of a run that saved there
    ./run.sh sweep --decode --beam_size=1,4 --batch_size=1,16 --encoder_type=cudnn_lstm

The weights are random without --checkpoint_dir, so that a translation often has --tgt_max_len words. Nothing is written
to --checkpoint_dir. docs/decode.md explains the search and the columns.

Exit status: 0 done, 1 the run failed, 2 wrong flags, 130 interrupted."""


@entry.command
def main(words: Sequence[str]) -> int:
    return train.run(words, USAGE, "decode", {"decode": True})
