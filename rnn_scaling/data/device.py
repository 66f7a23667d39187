"""Data source `device`: every step draws a fresh random batch on each tower's device; nothing comes from the host."""

import functools

from rnn_scaling.data.source import Feed, Source
from rnn_scaling.data.synthetic import draw, drawn


def build(feed: Feed) -> Source:
    """Random batches by (seed, step, tower): two runs with the same seed see the same ones.

    Fresh batches have no order that the number of towers could change, so `feed.split` is not read.
    """
    return drawn(feed, functools.partial(draw, feed))
