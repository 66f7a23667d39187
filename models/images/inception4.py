"""Inception v4: a stem, and 4, 7 and 3 modules with a reduction between them.

As in tf_cnn_benchmarks, models/inception_model.py, batch normalisations have no gamma. Images are 299 x 299, and
75 x 75 at least.

Source: Szegedy, Ioffe, Vanhoucke, Alemi, Inception-v4, Inception-ResNet and the Impact of Residual Connections on
Learning, arXiv:1602.07261, figures 3 to 9.
"""

from rnn_scaling.models.images.chains import (
    average_pool,
    chain,
    dropout,
    fork,
    max_pool,
)
from rnn_scaling.models.images.chains import normalized as conv
from rnn_scaling.models.images.layers import Layers, builder

_MEAN, _HALVE = average_pool(3, 1, "SAME"), max_pool(3, 2)
_TALL, _WIDE = (7, 1), (1, 7)
_STEM = (
    *(conv(32, 3, 2, "VALID"), conv(32, 3, 1, "VALID"), conv(64, 3)),
    fork(_HALVE, conv(96, 3, 2, "VALID")),
    fork(
        chain(conv(64, 1), conv(96, 3, 1, "VALID")),
        chain(conv(64, 1), conv(64, _TALL), conv(64, _WIDE), conv(96, 3, 1, "VALID")),
    ),
    fork(conv(192, 3, 2, "VALID"), _HALVE),
)
MODULE_A = fork(
    chain(_MEAN, conv(96, 1)),
    conv(96, 1),
    chain(conv(64, 1), conv(96, 3)),
    chain(conv(64, 1), conv(96, 3), conv(96, 3)),
)
_REDUCTION_A = fork(
    _HALVE,
    conv(384, 3, 2, "VALID"),
    chain(conv(192, 1), conv(224, 3), conv(256, 3, 2, "VALID")),
)
MODULE_B = fork(
    chain(_MEAN, conv(128, 1)),
    conv(384, 1),
    chain(conv(192, 1), conv(224, _WIDE), conv(256, _TALL)),
    chain(
        conv(192, 1),
        conv(192, _WIDE),
        conv(224, _TALL),
        conv(224, _WIDE),
        conv(256, _TALL),
    ),
)
_REDUCTION_B = fork(
    _HALVE,
    chain(conv(192, 1), conv(192, 3, 2, "VALID")),
    chain(conv(256, 1), conv(256, _WIDE), conv(320, _TALL), conv(320, 3, 2, "VALID")),
)
_SPLIT = fork(conv(256, (1, 3)), conv(256, (3, 1)))
MODULE_C = fork(
    chain(_MEAN, conv(256, 1)),
    conv(256, 1),
    chain(conv(384, 1), _SPLIT),
    chain(conv(384, 1), conv(448, (1, 3)), conv(512, (3, 1)), _SPLIT),
)
BODY = chain(
    *(
        *_STEM,
        *[MODULE_A] * 4,
        _REDUCTION_A,
        *[MODULE_B] * 7,
        _REDUCTION_B,
        *[MODULE_C] * 3,
    ),
    *(Layers.spatial_mean, dropout(0.2)),
)
build = builder(BODY)
