"""The bar of tqdm: ` 40%|####  | 40/100 [00:04<00:06, 9.95it/s, loss=0.5]`, or `40it [00:04, 1.25s/it]`.

Format: tqdm/tqdm, `format_meter` of tqdm/std.py.
"""

import re

from rnn_scaling.importers import lightning_bar
from rnn_scaling.importers.bars import NUMBER, Bar

FORMAT = "tqdm"
BAR = Bar(
    FORMAT,
    re.compile(
        rf"(?P<bar>.*?)(?:\d+%\|[^|]*\|)? *(?P<step>{NUMBER})(?:/(?P<total>{NUMBER}|\?))?[^\s\[|/]* "
        r"\[(?P<elapsed>[\d:?]{1,20})(?:<[^,\]]*)?, *"
        rf"(?:\?|(?P<rate>{NUMBER}))(?P<unit>s/[^,\]]+|[^,\]]*/s)(?:[^\]]*?loss=(?P<loss>{NUMBER}))?"
    ),
    needs="[",
    has_mean=True,
    notes=("A bar's last line has the mean rate from its first step to its last.",),
)
parse = BAR.parse


def detect(head: str) -> bool:
    """A bar with a rate that is none of Lightning's."""
    return BAR.detect(head) and not lightning_bar.detect(head)
