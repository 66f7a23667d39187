# ruff: noqa: E501 - a fault is a line of the table
"""The table of the faults that `python -m benchmarks.planted_faults` plants."""

from __future__ import annotations

import re
from typing import NamedTuple

T = "rnn_scaling/training"
V = f"{T}/variable_update"
M = "models"

# A small network of odd sizes.
SIZES = {
    "num_units": 31,
    "embedding_dim": 25,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "src_vocab_size": 189,
    "tgt_vocab_size": 23,
    "src_max_len": 11,
    "tgt_max_len": 9,
    "batch_size": 7,
    "direction": "uni",
}

# Flags that several faults and combinations share.
SGD = ()
MOMENTUM = ("--optimizer=momentum",)
ADAM = ("--optimizer=adam",)
RMSPROP = ("--optimizer=rmsprop",)
INT8 = ("--compress_gradients=int8",)
CLIP = ("--max_gradient_norm=0.01",)
DECAY = ("--weight_decay=0.1",)
INDEPENDENT = ("--variable_update=independent",)
SERVER = ("--variable_update=parameter_server",)
PIECEWISE = ("--lr_schedule=piecewise", "--lr_steps=4:0.05")
RAMP = ("--lr_scaling=linear", "--lr_warmup_batches=5")
REPEATED = ("--gradient_accumulation_steps=2",)
THREE = ("--num_devices=3",)
BI = ("--direction=bi", "--num_encoder_layers=2", "--num_decoder_layers=2")
ATTENTION = ("--model=nmt_attention",)
BAHDANAU = ("--model=nmt_attention", "--attention=bahdanau")

# Pieces of text that several faults replace or plant.
LOSS_SUM = "mean_loss = outcome.loss_sum / denominator"
APPLIED = (
    "update_operators.append(self._optimizer.apply("
    "variable, self._slots[name], grads[name], scale, step))"
)
CHUNK = (
    "copy_to_devices([tf.reshape(tf.where(tf.range(tf.size(t)) < tf.size(t) // 3, "
    "tf.reshape(placed[0], [-1]), tf.reshape(t, [-1])), tf.shape(t)) "
    "for t in tf_all_reduce.build_ring_all_reduce(placed, 1, shards, order, tf.add)"
    "], devices)"
)


class Fault(NamedTuple):
    """A fault in the trainer.

    Attributes:
      name: The name that the command line knows.
      file: The file, from the root of the repository.
      old: The text that is replaced.
      new: What replaces it.
      cause: A regular expression that is in the sentence of a certificate that names
        the cause.
      flags: The flags of a training that runs the faulty text.
    """

    name: str
    file: str
    old: str
    new: str
    cause: str
    flags: tuple[str, ...] = ()

    def find_in(self, text: str) -> re.Match[str] | None:
        """Return the first place of `old` in a file's text, however it is wrapped.

        Whitespace may differ, and so may a comma before a closing bracket, because
        the formatter decides about both.
        """
        pattern = ""
        for token in re.findall(r"\w+|\S", self.old):
            if pattern:
                pattern += r",?\s*" if token in ")]}" else r"\s*"
            pattern += re.escape(token)
        return re.search(pattern, text)


FAULTS = (
    # models
    Fault(
        "loss counts padding",
        f"{M}/cross_entropy.py",
        "steps < lengths, tf.float32",
        "steps < lengths + 1, tf.float32",
        "loss",
    ),
    Fault(
        "loss off by a factor",
        f"{M}/cross_entropy.py",
        "losses = log_sum - tf.gather_nd(logits, label_indices)",
        "losses = 1.1 * (log_sum - tf.gather_nd(logits, label_indices))",
        "loss",
    ),
    Fault(
        "loss gradient wrong",
        f"{M}/cross_entropy.py",
        "d_projection = tf.matmul(hidden * scale, d_logits, transpose_a=True)",
        "d_projection = 1.2 * tf.matmul(hidden * scale, d_logits, transpose_a=True)",
        "gradient",
    ),
    Fault(
        "block lstm bias gradient",
        f"{M}/encoders/block_lstm.py",
        "return d_x, None, d_c, d_h, d_kernel, d_bias",
        "return d_x, None, d_c, d_h, d_kernel, 0.0 * d_bias",
        "gradient",
    ),
    Fault(
        "forget bias",
        f"{M}/cells/lstm.py",
        "tf.sigmoid(f + forget_bias)",
        "tf.sigmoid(f)",
        "cell",
        ("--encoder_type=dynamic_rnn",),
    ),
    Fault(
        "gate order",
        f"{M}/cells/gru.py",
        "return (n + u * (h - n),)",
        "return (h + u * (n - h),)",
        "cell",
        ("--unit_type=gru", "--encoder_type=dynamic_rnn"),
    ),
    Fault(
        "direction not reversed",
        f"{M}/stacks.py",
        "ordered = reverse_time(x, lengths) if direction else x",
        "ordered = x",
        "cell|direction",
        BI,
    ),
    Fault(
        "length off by one",
        f"{M}/stacks.py",
        "lengths - 1 - step, step)",
        "tf.maximum(lengths - 2 - step, 0), step)",
        "cell|direction",
        BI,
    ),
    Fault(
        "attention mask missing",
        f"{M}/attention/scores.py",
        "return tf.where(positions < lengths[:, None], 0.0, tf.float32.min)",
        "return tf.where(positions < lengths[:, None], 0.0, 0.0)",
        "attention",
        ATTENTION,
    ),
    Fault(
        "attention gradient",
        f"{M}/attention/scores.py",
        "return tf.reduce_sum(d_sum, axis=1), d_sum, d_v",
        "return tf.reduce_sum(d_sum, axis=1), d_sum, 0.5 * d_v",
        "attention",
        BAHDANAU,
    ),
    Fault(
        "deferred product gradient",
        f"{M}/attention/loop_products.py",
        "return _multiply(tf.cast(d, x.dtype), self._transposed), d",
        "return 0.9 * _multiply(tf.cast(d, x.dtype), self._transposed), d",
        "gradient",
        ATTENTION,
    ),
    Fault(
        "decoder from half the state",
        f"{M}/seq2seq.py",
        "cells, target, batch.target_length, state, make_stream_seed(",
        "cells, target, batch.target_length, tuple(0.5 * s for s in state), make_stream_seed(",
        "network",
    ),
    Fault(
        "dropout not rescaled",
        f"{M}/stacks.py",
        "tf.nn.experimental.stateless_dropout(x, rate, fold_in(seed, stream))",
        "tf.nn.experimental.stateless_dropout(x, rate, fold_in(seed, stream)) * (1 - rate)",
        "dropout",
        ("--dropout=0.3",),
    ),
    Fault(
        "frozen variance",
        f"{M}/images/layers.py",
        'self.moving[self._scope + "moving_variance"] = normalized.batch_variance',
        'self.moving[self._scope + "moving_variance"] = variance',
        "averages|variance",
        ("--model=resnet20", "--batch_size=4", "--num_batches=3"),
    ),
    # loss and towers
    Fault(
        "mean of towers' means",
        f"{T}/replica.py",
        "return [tf.add_n(list(items))] * len(items)",
        "return [len(items) * item for item in items]",
        "mean",
    ),
    Fault(
        "divided twice",
        f"{T}/tower.py",
        LOSS_SUM,
        LOSS_SUM + " / self._engine.num_towers",
        "averaged|mean",
    ),
    Fault(
        "sum for mean",
        f"{T}/tower.py",
        LOSS_SUM,
        LOSS_SUM + " * self._engine.num_towers",
        "sum",
    ),
    Fault(
        "mean a batch not a word",
        f"{T}/tower.py",
        LOSS_SUM,
        "mean_loss = outcome.loss_sum / 16.0",
        "factor|times|batch",
    ),
    Fault(
        "equal dropout",
        f"{T}/tower.py",
        "(self._engine.first_tower + index)\n",
        "self._engine.first_tower\n",
        "drops",
        ("--dropout=0.3",),
    ),
    # data
    Fault(
        "same batch at every step",
        "rnn_scaling/data/device.py",
        "tf.cast(step, tf.int64)])",
        "0 * tf.cast(step, tf.int64)])",
        "same batch",
    ),
    Fault(
        "same batch on both towers",
        "rnn_scaling/data/device.py",
        "2 * tower + stream",
        "stream",
        "same batch|batch of tower",
    ),
    Fault(
        "step not counted",
        f"{T}/train_step.py",
        "self._step.assign_add(1)",
        "self._step.assign_add(0)",
        "same batch|batch of step",
    ),
    Fault(
        "workers share a batch",
        "rnn_scaling/data/device.py",
        "range(len(feed.batch_sizes))[feed.own_towers]",
        "range(len(feed.own_batch_sizes))",
        "same batch|batch of tower",
        ("--num_workers=2", "--variable_update=collective_all_reduce"),
    ),
    # exchange
    Fault(
        "tower left out",
        f"{T}/all_reduce/exchange.py",
        "reduce_function(tensors)",
        "reduce_function([tensors[0], *[tf.zeros_like(t) for t in tensors[1:]]])",
        "left out|tower.s own",
    ),
    Fault(
        "ring drops a chunk",
        f"{T}/all_reduce/xring.py",
        "copy_to_devices(tf_all_reduce.build_ring_all_reduce(placed, 1, shards, order, tf.add), devices)",
        CHUNK,
        "left out|differently|chunk",
        ("--all_reduce_spec=xring", *THREE),
    ),
    Fault(
        "stale gradient",
        f"{T}/replica.py",
        'if options.variable_consistency == "relaxed":',
        "if True:",
        "batch before",
    ),
    Fault(
        "rows of other towers lost",
        f"{V}/replicated.py",
        "functools.partial(gradients.add, slices)",
        "functools.partial(gradients.add, slices[:1])",
        "left out|tower.s own",
    ),
    Fault(
        "embedding row lost",
        f"{T}/tower.py",
        "tf.IndexedSlices(rows, indices, shape",
        "tf.IndexedSlices(tf.where(indices[:, None] == 7, 0.0, rows), indices, shape",
        "row",
    ),
    Fault(
        "duplicates not added",
        f"{T}/optimizers.py",
        "return tf.raw_ops.ResourceScatterSub(resource=handle, indices=gradient.indices, updates=rate * gradient.values)",
        "return tf.raw_ops.ResourceScatterUpdate(resource=handle, indices=gradient.indices, updates=tf.gather(update.variable, gradient.indices) - rate * gradient.values)",
        "several times|duplicate",
    ),
    Fault(
        "not updated",
        f"{T}/replica.py",
        APPLIED,
        'if name == "projection": continue\n                ' + APPLIED,
        "not change",
    ),
    Fault(
        "not broadcast",
        f"{T}/replica.py",
        "tf.Variable(values[spec.name], name=",
        'tf.Variable(values[spec.name] * (0.5 if prefix == "tower_1" and spec.name == "projection" else 1.0), name=',
        "starts from different weights",
    ),
    # update
    Fault(
        "rate doubled on a tower",
        f"{T}/replica.py",
        APPLIED,
        APPLIED.replace(
            "grads[name], scale",
            'grads[name], (2.0 if "tower_1" in variable.name else None)',
        ),
        "learning rate",
    ),
    Fault(
        "rate doubled on a tower, independent",
        f"{T}/replica.py",
        APPLIED,
        APPLIED.replace(
            "grads[name], scale",
            'grads[name], (2.0 if "tower_1" in variable.name else None)',
        ),
        "learning rate",
        INDEPENDENT,
    ),
    Fault(
        "ramp off by one",
        "rnn_scaling/config/learning_rate.py",
        "minimum(update / self",
        "minimum((update + 1) / self",
        "learning rate",
        RAMP,
    ),
    Fault(
        "ramp to another rate",
        "rnn_scaling/config/learning_rate.py",
        "config.num_towers * training.gradient_accumulation_steps",
        "4",
        "learning rate",
        RAMP,
    ),
    Fault(
        "momentum 0.99",
        f"{T}/optimizers.py",
        "\nMOMENTUM = 0.9\n",
        "\nMOMENTUM = 0.99\n",
        "momentum.* 0.99",
        MOMENTUM,
    ),
    Fault(
        "Nesterov",
        f"{T}/optimizers.py",
        "momentum=tf.constant(MOMENTUM, update.variable.dtype),",
        "momentum=tf.constant(MOMENTUM, update.variable.dtype), use_nesterov=True,",
        "Nesterov",
        MOMENTUM,
    ),
    Fault(
        "RMSProp epsilon",
        f"{T}/optimizers.py",
        "RMSPROP_EPSILON = 1.0\n",
        "RMSPROP_EPSILON = 0.1\n",
        "epsilon is 0.1",
        RMSPROP,
    ),
    Fault(
        "decays biases",
        f"{T}/optimizers.py",
        "len(variable.shape) > 1",
        "True",
        "decay is also applied to biases",
        DECAY,
    ),
    Fault(
        "no decay",
        f"{T}/optimizers.py",
        "if self.weight_decay and",
        "if False and",
        "no weight decay",
        DECAY + MOMENTUM,
    ),
    Fault(
        "Adam with L2",
        f"{T}/optimizers.py",
        'DECOUPLED = ("adam",)',
        "DECOUPLED = ()",
        "added to the gradient",
        DECAY + ADAM,
    ),
    Fault(
        "no schedule",
        f"{T}/optimizers.py",
        "if not self.learning_rate.is_constant:",
        "if False:",
        "schedule",
        PIECEWISE,
    ),
    Fault(
        "last micro-batch alone",
        f"{T}/tower.py",
        "if not summed: return grads",
        "if True:\n        return grads",
        "last micro-batch",
        REPEATED,
    ),
    Fault(
        "Adam beta 2",
        f"{T}/optimizers.py",
        "ADAM_BETA_2 = 0.999\n",
        "ADAM_BETA_2 = 0.99\n",
        "beta_2",
        ADAM,
    ),
    Fault(
        "Adam epsilon",
        f"{T}/optimizers.py",
        "ADAM_EPSILON = 1e-7\n",
        "ADAM_EPSILON = 1e-3\n",
        "epsilon",
        ADAM,
    ),
    Fault(
        "Adam without correction",
        f"{T}/optimizers.py",
        "rate /= 1.0 - tf.pow(tf.constant(ADAM_BETA_1, tf.float64), count)",
        "rate = tf.cast(update.rate, tf.float64)",
        "correct",
        ADAM,
    ),
    Fault(
        "clipping by tower",
        f"{T}/replica.py",
        "norm = self._compute_global_norm(grads)",
        "norm = 0.5 * self._compute_global_norm(grads)",
        "clip",
        CLIP,
    ),
    Fault(
        "not clipped",
        f"{T}/gradients.py",
        "return max_norm / tf.maximum(global_norm, max_norm)",
        "return 1.0 + 0.0 * global_norm",
        "clip",
        CLIP,
    ),
    Fault(
        "int8 without feedback",
        f"{T}/compression.py",
        "lost.assign(tf.where(tf.math.is_finite(error), error, tf.zeros_like(error)))",
        "lost.assign(tf.zeros_like(error))",
        "feedback",
        INT8,
    ),
    Fault(
        "int8 scale",
        f"{T}/compression.py",
        "return tf.cast(rows, tf.float32) * scales\n",
        "return tf.cast(rows, tf.float32) * scales * (127 / 125)\n",
        "int8|scale",
        INT8,
    ),
    Fault(
        "from step 8 on",
        f"{T}/tower.py",
        LOSS_SUM,
        LOSS_SUM + " * tf.where(step >= 8, 1.5, 1.0)",
        "1.5 times",
    ),
    Fault(
        "tower counts twice",
        f"{V}/parameter_server.py",
        "= gradients.add(list(pieces))",
        "= gradients.add([*pieces, pieces[0]])",
        "twice",
        SERVER,
    ),
    # written before the code that finds them was read
    Fault(
        "each tower clips its own gradient",
        f"{T}/tower.py",
        "grads[name] = _divide(gradient, inputs.loss_scale)",
        "grads[name] = _divide(gradient, inputs.loss_scale)\n"
        "            from rnn_scaling.training.gradients import compute_squared_norm\n"
        "            norm = tf.sqrt(tf.add_n([compute_squared_norm(gradient) for gradient in grads.values()]))\n"
        "            longer = tf.maximum(1.0, norm * self._engine.num_towers / 0.01)\n"
        "            grads = {name: _divide(gradient, longer) for name, gradient in grads.items()}",
        "clip",
        CLIP,
    ),
    Fault(
        "last sentence dropped from the loss",
        f"{M}/cross_entropy.py",
        "    lengths = tf.cast(lengths, tf.int64)\n    if time_axis == 0:",
        (
            "    lengths = tf.concat([tf.cast(lengths, tf.int64)[:-1], [0]], 0)\n"
            "    if time_axis == 0:"
        ),
        "loss",
    ),
    Fault(
        "Adam without correction of the second moment",
        f"{T}/optimizers.py",
        "rate = update.rate * tf.sqrt(1.0 - tf.pow(tf.constant(ADAM_BETA_2, tf.float64), count))",
        "rate = tf.cast(update.rate, tf.float64)",
        "correct",
        ADAM,
    ),
    Fault(
        "gradient of the attention's matrix transposed",
        f"{M}/attention/scores.py",
        "self.keys = _multiply_rows(memory, weights[MEMORY])\n",
        (
            "w = weights[MEMORY]\n"
            "        self.keys = _multiply_rows(memory, tf.stop_gradient(w - tf.transpose(w)) + tf.transpose(w))\n"
        ),
        "gradient",
        ATTENTION,
    ),
    Fault(
        "biases never updated",
        f"{T}/replica.py",
        APPLIED,
        'if "bias" in name: continue\n                ' + APPLIED,
        "not change",
    ),
    Fault(
        "ramp ends one step early",
        "rnn_scaling/config/learning_rate.py",
        "minimum(update / self.ramp_updates",
        "minimum(update / (self.ramp_updates - 1)",
        "learning rate",
        RAMP,
    ),
    Fault(
        "weight decay",
        f"{T}/replica.py",
        APPLIED,
        APPLIED.replace(
            "grads[name],",
            'grads[name] if "embedding" in name else grads[name] + 0.01 * variable,',
        ),
        "decay",
    ),
    Fault(
        "rows after the first tower's number lost",
        f"{T}/gradients.py",
        "values = tf.concat([gradient.values for gradient in grads], axis=0)\n"
        "        indices = tf.concat([gradient.indices for gradient in grads], axis=0)",
        "num = tf.shape(grads[0].indices)[0]\n"
        "        values = tf.concat([gradient.values[:num] for gradient in grads], axis=0)\n"
        "        indices = tf.concat([gradient.indices[:num] for gradient in grads], axis=0)",
        "rows|embedding",
    ),
    Fault(
        "rows that fill up a worker's gradient are not zero",
        f"{T}/all_reduce/collective.py",
        "values = tf.pad(rows.values, [[0, num_missing], [0, 0]])",
        "values = tf.pad(rows.values, [[0, num_missing], [0, 0]], constant_values=0.01)",
        "rows|embedding",
        ("--num_workers=2", "--variable_update=collective_all_reduce"),
    ),
    Fault(
        "no dropout in the sublayers of a Transformer",
        f"{M}/transformer.py",
        "rows = x.rows + drop(tf.cast(result, tf.float32))",
        "rows = x.rows + tf.cast(result, tf.float32)",
        "drop",
        ("--model=transformer", "--dropout=0.3"),
    ),
    Fault(
        "norm counts repeated rows apart",
        f"{T}/gradients.py",
        "if isinstance(gradient, tf.IndexedSlices):\n        # Only",
        "if isinstance(gradient, tf.IndexedSlices):\n"
        "        return tf.reduce_sum(tf.square(tf.cast(gradient.values, tf.float32)))\n"
        "    if False:\n        # Only",
        "norm",
    ),
    Fault(
        "mean of micro-batches' means",
        f"{T}/tower.py",
        LOSS_SUM,
        "mean_loss = outcome.loss_sum / self._workload.count_loss_items(batch) / 4.0",
        "means of the micro-batches",
        REPEATED,
    ),
    Fault(
        "each micro-batch clipped",
        f"{T}/tower.py",
        "summed = _add_gradients(summed, grads)",
        "from rnn_scaling.training.gradients import compute_squared_norm\n"
        "                    squares = [compute_squared_norm(gradient) for gradient in grads.values()]\n"
        "                    longer = tf.maximum(1.0, tf.sqrt(tf.add_n(squares)) * 4.0 / 0.01)\n"
        "                    grads = {name: _divide(gradient, longer) for name, gradient in grads.items()}\n"
        "                    summed = _add_gradients(summed, grads)",
        "micro-batch is clipped",
        REPEATED + CLIP,
    ),
    Fault(
        "Adam counts two updates per update",
        f"{T}/optimizers.py",
        "count = tf.cast(update.step + 1, tf.float64)",
        "count = tf.cast(2 * update.step + 1, tf.float64)",
        "count of updates grows by 2",
        ADAM,
    ),
    Fault(
        "every fourth batch not learnt",
        f"{T}/tower.py",
        LOSS_SUM,
        LOSS_SUM + " * tf.where(step % 4 == 3, 0.0, 1.0)",
        "not change",
    ),
)
