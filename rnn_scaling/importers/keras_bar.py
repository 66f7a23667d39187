"""The bar of Keras' `fit`: `40/100 ━━━━━━━ 1s 25ms/step - loss: 0.5`; of Keras 2 `4/10 [===>...] - ETA: 1s - loss: 1`.

Format: keras-team/keras, keras/src/utils/progbar.py and, of Keras 2, keras/utils/generic_utils.py; verbose=2, too.
"""

import re

from rnn_scaling.importers.bars import NUMBER, Bar

FORMAT = "keras"
BAR = Bar(
    FORMAT,
    re.compile(
        r"\s*(?P<step>\d+)/(?P<total>\d+|Unknown)\s(?:[━\s]*|\s*\[[=>.]*\] -|\s*(?P<bar>-))\s*(?:ETA: )?\d[\d:]*s?\b"
        rf"(?=(?:.*?\D(?P<rate>{NUMBER})(?P<unit>(?:us|µs|ms|s)/step))?)(?=(?:.*?\bloss: (?P<loss>{NUMBER}))?)"
    ),
    needs="/",
    has_mean=False,
    validated=" val_",
    notes=(
        "The seconds of a step are the mean of an epoch without its first step; with verbose=2 validation counts.",
    ),
)
detect, parse = BAR.detect, BAR.parse
