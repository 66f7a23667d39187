"""independent: a copy of the variables on each device, without any exchange.

Its speed is an upper bound for the other modes. `benchmark` builds the mode that
--variable_update names; nothing else depends on this module.
"""

from collections.abc import Sequence

import tensorflow as tf

from rnn_scaling.training.replica import Replicas


class Independent(Replicas):
    """Copies of the variables that train independently."""

    def count_total_items(self, items: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return list(items)


build = Independent
