"""Find out what the model behind an upstream can do.

    report = await probe_model(served, upstreams)
    report.mode, report.reason      the recommended mode, and the reason

`questions` are asked by `asking`, each of `trials` finds out one capability, `run` scores the modes
and recommends one, and `config_advice` writes the recommendation to `toolspeak.toml`.
"""

from .config_advice import ConfigAdvice, advise_config, save_advice
from .run import ProbeReport, probe_model

__all__ = ["ConfigAdvice", "ProbeReport", "advise_config", "probe_model", "save_advice"]
