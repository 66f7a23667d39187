"""A callback for anybody's `model.fit`: items a second of every epoch, and a run record at the end."""

from __future__ import annotations

from rnn_scaling.training.recorder import Recorder

ItemsPerSecond = Recorder.callback_keras
