"""VGG with 11 layers, configuration A: blocks of 3 x 3 convolutions between poolings, then two wide dense layers.

The 16 and 19 layers are in keras_applications.py. Those have no dropout; this one has, as in tf_cnn_benchmarks.

Source: Simonyan, Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, arXiv:1409.1556.
"""

from rnn_scaling.models.images.layers import Layers, builder
from rnn_scaling.models.images.steps import chain, convolution, dense, dropout, max_pool

_BLOCKS = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # channels of each convolution
BODY = chain(
    *(step for block in _BLOCKS for step in (*(convolution(channels, 3) for channels in block), max_pool(2, 2))),
    *(Layers.flatten, dense(4096), dropout(0.5), dense(4096), dropout(0.5)),
)
build = builder(BODY)
