"""GoogLeNet, also called Inception v1: nine modules of four branches; biases, no batch normalisation.

As in tf_cnn_benchmarks, models/googlenet_model.py, it has no auxiliary classifiers, dropout or local normalisation.
The mean over all positions is the 7 x 7 pooling there.

Source: Szegedy and others, Going Deeper with Convolutions, arXiv:1409.4842, table 1.
"""

from rnn_scaling.models.images.chains import Step, chain, convolution, fork, max_pool
from rnn_scaling.models.images.layers import Layers, builder


def module(
    conv_1x1: int,
    reduce_3x3: int,
    conv_3x3: int,
    reduce_5x5: int,
    conv_5x5: int,
    pool_projection: int,
) -> Step:
    """Convolutions of 1 x 1, 3 x 3 and 5 x 5 and a pooling; the arguments are channels."""
    return fork(
        convolution(conv_1x1, 1),
        chain(convolution(reduce_3x3, 1), convolution(conv_3x3, 3)),
        chain(convolution(reduce_5x5, 1), convolution(conv_5x5, 5)),
        chain(max_pool(3, 1, "SAME"), convolution(pool_projection, 1)),
    )


_HALVE = max_pool(3, 2, "SAME")
BODY = chain(
    *(convolution(64, 7, 2), _HALVE, convolution(64, 1), convolution(192, 3), _HALVE),
    *(module(64, 96, 128, 16, 32, 32), module(128, 128, 192, 32, 96, 64), _HALVE),
    *(
        module(192, 96, 208, 16, 48, 64),
        module(160, 112, 224, 24, 64, 64),
        module(128, 128, 256, 24, 64, 64),
    ),
    *(module(112, 144, 288, 32, 64, 64), module(256, 160, 320, 32, 128, 128), _HALVE),
    *(
        module(256, 160, 320, 32, 128, 128),
        module(384, 192, 384, 48, 128, 128),
        Layers.spatial_mean,
    ),
)
build = builder(BODY)
