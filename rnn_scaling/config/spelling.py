"""Spell an option as a flag, and a configuration as the command that runs it.

Messages and reports spell commands only with these functions, so that they can be
pasted.
"""

import functools
import shlex
from collections.abc import Mapping
from typing import Any

from rnn_scaling.config import presets, registry, scale
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import NOT_COMPARED, find_unread_options
from rnn_scaling.system import entry


def spell(name: str, value: Any) -> str:
    """Return a flag as a user writes it."""
    return f"--{name}={str(value).lower() if isinstance(value, bool) else value}"


def make_sweep_command(config: Mapping[str, Any], **changes: Any) -> str:
    """Return the sweep that runs a configuration with some changes."""
    options = {**config, **changes}
    preset = presets.find_current_name(options["preset"])
    model = presets.find_model(preset)
    defaults = {
        **_list_default_options(preset, options["device"], options.get("model", model)),
        "model": model,
    }
    always = {
        "encoder_type",
        "variable_update",
        "num_devices",
        scale.find_axis(options),
    }
    excluded = {*find_unread_options(options), *NOT_COMPARED}
    words = [entry.get_program_name(), "sweep"]
    if preset != presets.choose_sweep_preset(options["device"] == "gpu"):
        words.append(spell("preset", preset))
    for name, value in options.items():
        if value is None or name in excluded:
            continue
        is_default = value == defaults.get(name, value)
        if name in always or not (is_default or _is_implied(name, value, options)):
            words.append(shlex.quote(spell(name, value)))
    return " ".join(words)


def _is_implied(name: str, value: Any, options: Mapping[str, Any]) -> bool:
    """Return whether the other options give an option this value."""
    if name == "decoder_type":
        return bool(value == options["encoder_type"])
    if name == "prefetch_data_to_device":
        source = options["data_source"]
        return bool(value == registry.reads(registry.DATA_SOURCES, source, name))
    if name == "batch_size":
        return bool(options["global_batch_size"])
    return name == "param_server_device" and bool(value == options["device"])


@functools.lru_cache(maxsize=64)
def _list_default_options(preset: str, device: str, model: str) -> Mapping[str, Any]:
    options = {"preset": preset, "device": device, "model": model}
    return configs.resolve(options, num_gpus=0, num_cores=1).flat()
