"""Options as a user writes them: a flag, and the command that runs a configuration."""

import functools
import shlex
from collections.abc import Mapping
from typing import Any

from rnn_scaling.config import presets, registry, scale
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import NOT_COMPARED, unread_options
from rnn_scaling.system import entry


def spell(name: str, value: Any) -> str:
    """A flag as the user would write it."""
    return f"--{name}={str(value).lower() if isinstance(value, bool) else value}"


def command(config: Mapping[str, Any], **changes: Any) -> str:
    """The sweep that runs this configuration with these changes."""
    wanted = {**config, **changes}
    ignored = unread_options(wanted)
    model = presets.model_of(wanted["preset"])
    defaults = {
        **_defaults(wanted["preset"], wanted["device"], wanted.get("model", model)),
        "model": model,
    }
    always = {"encoder_type", "variable_update", "num_devices", scale.axis(wanted)}
    options = [
        (name, value)
        for name, value in wanted.items()
        if name in always or value != defaults.get(name, value)
    ]
    words = []
    for name, value in options:
        if (
            value is None
            or name in ignored
            or (name in NOT_COMPARED and name != "preset")
        ):
            continue
        if name in always or not _follows(name, value, wanted):
            words.append(spell(name, value))
    return " ".join([entry.program(), "sweep", *map(shlex.quote, words)])


def _follows(name: str, value: Any, wanted: Mapping[str, Any]) -> bool:
    """Whether an option has this value because of the others'."""
    if name == "decoder_type":
        return bool(value == wanted["encoder_type"])
    if name == "prefetch_data_to_device":
        return bool(
            value == registry.reads(registry.DATA_SOURCES, wanted["data_source"], name)
        )
    if name == "batch_size":
        return bool(wanted["global_batch_size"])
    return name == "param_server_device" and bool(value == wanted["device"])


@functools.lru_cache(maxsize=64)
def _defaults(preset: str, device: str, model: str) -> Mapping[str, Any]:
    return configs.resolve(
        {"preset": preset, "device": device, "model": model}, num_gpus=0, num_cores=1
    ).flat()
