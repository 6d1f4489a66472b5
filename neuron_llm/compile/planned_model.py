"""A configuration file read, its model found, and what compiling the two means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from neuron_llm.artifact.arguments import as_path, check_type
from neuron_llm.backends.neuron.packages import installed_binding
from neuron_llm.compile.added_buckets import with_added_buckets
from neuron_llm.compile.config.file import LoadedConfig, load_config
from neuron_llm.compile.config.hub import with_local_model
from neuron_llm.compile.plan.plan import CompilePlan, plan_compile


@dataclass(frozen=True)
class PlannedModel:
    """What is compiled.

    Attributes:
        loaded: the configuration with the buckets that were added, and its model on this machine.
        plan: what compiling it means.
        added_buckets: the buckets that the file does not name.
    """

    loaded: LoadedConfig
    plan: CompilePlan
    added_buckets: tuple[str, ...] = ()


def plan_model(
    config: str | Path,
    *,
    added_buckets: Iterable[str] = (),
    skip_weights: bool = False,
    on_progress: Callable[[str], None] = lambda text: None,
) -> PlannedModel:
    """Return what compiling a configuration file means; compiles nothing and needs no torch.

    A model that is named by its hub id is downloaded.

    Args:
        config: the YAML file.
        added_buckets: more buckets, such as `prefill:2048` or `decode:4x512`, see
            `with_added_buckets`.
        skip_weights: plan from the model's `config.json` alone. Such a plan cannot be compiled.
        on_progress: told what takes time, before it does.

    Raises:
        ConfigError: one or more faults, all that could be found; or the graphs need more memory
            than the device has.
        UnsupportedModelError: the file is right, but its model cannot be compiled.
        ModelNotFoundError: the model cannot be downloaded.
    """
    # A text has parts as well, a letter each.
    added = (added_buckets,) if isinstance(added_buckets, str) else tuple(added_buckets)
    for bucket in added:
        check_type(bucket, "added_buckets", str, "a text such as `prefill:2048`")
    loaded = load_config(as_path(config, "config"), skip_weights=skip_weights)
    if loaded.model_path is None:
        on_progress(f"fetching `{loaded.config.model}` at revision `{loaded.config.revision}`")
        loaded = with_local_model(loaded, skip_weights=skip_weights)
    model = loaded.model_spec
    assert model is not None, "the model is on this machine now"
    plan = plan_compile(loaded, model, auto_binding=installed_binding())
    if added:
        loaded = with_added_buckets(loaded, plan, added)
        plan = plan_compile(loaded, model, auto_binding=installed_binding())
    return PlannedModel(loaded, plan, added)
