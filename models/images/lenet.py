"""LeNet-5 with the widths of TensorFlow's MNIST tutorial: two convolutions and a wide dense layer.

Images of ImageNet are 28 x 28, as in tf_cnn_benchmarks, models/lenet_model.py.

Source: LeCun, Bottou, Bengio, Haffner, Gradient-Based Learning Applied to Document Recognition, 1998.
"""

from rnn_scaling.models.images.layers import Layers, builder
from rnn_scaling.models.images.steps import chain, convolution, dense, max_pool

BODY = chain(convolution(32, 5), max_pool(2, 2), convolution(64, 5), max_pool(2, 2), Layers.flatten, dense(512))
build = builder(BODY)
