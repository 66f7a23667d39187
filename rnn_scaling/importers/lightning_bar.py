"""The bars of Lightning's training epochs: `Epoch 1:  40%|####  | 40/100 [00:04<00:06, 9.95it/s]`, and those of rich.

Format: Lightning-AI/pytorch-lightning, lightning/pytorch/callbacks/progress/.
"""

import re

from rnn_scaling.importers.bars import NUMBER, Bar

FORMAT = "lightning"
BAR = Bar(
    FORMAT,
    re.compile(
        r"\s*(?P<bar>Epoch) \d+(?:/-?\d+)?:?\s.*?[|━╸╺ ]\s*(?P<step>\d+)/(?P<total>\d+)\s"
        r"(?:\[(?P<elapsed>[\d:]{1,20})<)?.*?[, ]"
        rf"(?P<rate>{NUMBER})(?P<unit>it/s|s/it)(?:.*?loss(?:=|: )(?P<loss>{NUMBER}))?"
    ),
    needs="Epoch",
    has_mean=False,
    notes=(
        "A bar's rate is the mean since the epoch began; the bar of rich shows that of its latest steps.",
    ),
)
_OWN = re.compile(
    r"Sanity Checking|Validation DataLoader|Trainer\.fit|\bv_num\b|Trainable params"
)
parse = BAR.parse


def detect(head: str) -> bool:
    """A bar of an epoch and another text of Lightning: tqdm's bars may have the same title."""
    return BAR.detect(head) and bool(_OWN.search(head))
