"""One tower, and several that share its global batch, count the same predictions."""

import numpy as np
import pytest

from tests.training.test_checkpoints import build

pytestmark = pytest.mark.usefixtures("as_built")

GIVEN = {"data_source": "copy", "global_batch_size": 31, "accuracy": True}


@pytest.fixture(scope="module")
def alone(tf):
    """Return the losses and counts of the first steps on one device."""
    step, state = build({**GIVEN, "num_devices": 1})
    results = [step() for _ in range(3)]
    for result in results:
        state.timer.start()
        state.timer.end_step(int(result.items.sum()), result.loss)
        state.end_batch(result)
    return results, state


@pytest.mark.parametrize("mode", ["mirrored", "keras_slicing"])
def test_towers_that_share_a_global_batch_are_right_as_often_as_one(tf, alone, mode):
    step, _ = build({**GIVEN, "variable_update": mode})
    for want in alone[0]:
        got = step()
        assert got.loss_items.tolist() == [48.0, 45.0]
        assert want.loss_items.tolist() == [93.0]
        assert got.correct.sum() == want.correct.sum() and got.accuracy == want.accuracy
        assert got.loss == pytest.approx(want.loss, rel=1e-5)
    assert sum(result.correct.sum() for result in alone[0]) > 0


def test_the_record_has_the_counts(alone):
    results, state = alone
    batches = state.make_record("ok").batches
    assert batches.correct == tuple(int(result.correct.sum()) for result in results)
    assert batches.loss_items == (93, 93, 93)
    assert state.compute_accuracies() == [result.accuracy for result in results]
    assert state.collect_batches(1)["correct"] == list(batches.correct[1:])


def test_nobody_counts_unless_asked(tf):
    step, state = build({})
    result = step()
    assert result.correct is None and result.accuracy is None
    state.timer.start()
    state.timer.end_step(1, result.loss)
    state.end_batch(result)
    assert (
        "correct" not in state.collect_batches(0) and state.compute_accuracies() == []
    )
    assert state.make_record("ok").batches.correct is None
    operators = {op.type for op in step.graph().get_operations()}
    assert "ArgMax" not in operators, operators
    assert np.isfinite(result.loss)


@pytest.mark.parametrize("accuracy", [False, True])
def test_images_are_right_where_the_largest_logit_is_the_label(tf, accuracy):
    from rnn_scaling.models.batch import ImageBatch
    from rnn_scaling.models.config import ModelConfig
    from rnn_scaling.models.images.classifier import ImageClassifier

    class Fixed(ImageClassifier):
        def declare_variables(self):
            return ()

        def compute_logits(self, weights, images, seed):
            return tf.constant([[0.0, 2.0, 1.0], [5.0, 2.0, 1.0], [0.0, 1.0, 1.0]]), {}

    classifier = Fixed(ModelConfig(model="resnet50", accuracy=accuracy), 2, 3)
    batch = ImageBatch(tf.zeros([3, 2, 2, 3]), tf.constant([1, 1, 1], tf.int64))
    outcome = classifier.forward({}, {}, batch, tf.constant([0, 1]))
    assert outcome.correct is None if not accuracy else float(outcome.correct) == 2.0
