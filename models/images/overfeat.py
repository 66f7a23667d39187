"""OverFeat, its fast model: five convolutions and two wide dense layers.

The layers are those of tf_cnn_benchmarks, models/overfeat_model.py. Images are 231 x 231, and 71 x 71 at least.

Source: Sermanet, Eigen, Zhang, Mathieu, Fergus, LeCun, OverFeat, arXiv:1312.6229, table 1.
"""

from rnn_scaling.models.images.layers import Layers, builder
from rnn_scaling.models.images.steps import chain, convolution, dense, dropout, max_pool

BODY = chain(
    *(convolution(96, 11, 4, "VALID"), max_pool(2, 2)),
    *(convolution(256, 5, 1, "VALID"), max_pool(2, 2)),
    *(convolution(512, 3), convolution(1024, 3), convolution(1024, 3), max_pool(2, 2)),
    *(Layers.flatten, dense(3072), dropout(0.5), dense(4096), dropout(0.5)),
)
build = builder(BODY)
