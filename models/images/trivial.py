"""A probe of the fixed cost of a step: two dense layers, of 1 and of 4096 numbers.

Source: tf_cnn_benchmarks, models/trivial_model.py.
"""

from rnn_scaling.models.images.layers import Layers, builder
from rnn_scaling.models.images.steps import chain, dense

BODY = chain(Layers.flatten, dense(1), dense(4096))
build = builder(BODY)
