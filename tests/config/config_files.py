"""Configuration files for tests, and functions that load them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from toolspeak.config.document import ConfigError
from toolspeak.config.loading import VARIABLES, LoadedConfig, read_config
from toolspeak.config.settings import Config

BOX = '[upstreams.box]\nprovider = "ollama"\n'
QWEN = BOX + '[models.qwen]\nupstream = "box"\n'
EVERYTHING = """
store = "redis://user:hunter2hunter2@localhost:6379/0"
default = "m"
embedded = true
gguf = "model.gguf"
[server]
host = "::1"
port = 8001
workers = 2
keys = ["client-key-0123456789"]
admin_key = "admin-key-0123456789"
allowed_hosts = ["gateway.example.org"]
allowed_origins = ["https://example.org"]
log_format = "json"
[limits]
body_bytes = 1
header_bytes = 2
json_depth = 3
total_body_bytes = 6
json_values = 7
messages = 8
tool_bytes = 9
tools = 4
concurrent_requests = 5
[inspector]
enabled = false
requests = 6
bytes = 7
[store_limits]
bytes = 8
value_bytes = 9
entries = 10
[telemetry]
otlp_endpoint = "http://name:hunter2hunter2@127.0.0.1:4318"
include_content = true
[upstreams.u]
provider = "custom"
wire = "openai_responses"
base_url = "http://name:hunter2hunter2@127.0.0.1:8000/v1"
key = "upstream-key-0123456789"
headers = { Authorization = "Basic hunter2hunter2", X-Title = "Title" }
model = "n"
connect_timeout = 1
first_byte_timeout = 2.5
idle_timeout = 3.5
concurrency = 4
retries = 0
fallbacks = ["v"]
[upstreams.v]
provider = "ollama"
[models.m]
upstream = "u"
model = "o"
tools = "prompt"
dialect = "hermes"
trust = "strict"
retries = 1
max_repeats = 4
polling_tools = ["wait_*"]
tool_aliases = {bash = "shell"}
select_tools_above = 4000
weak = true
compact_tools = true
context_window = 4096
system_role = false
starts_in_reasoning = false
[aliases]
a = "m"
"""
SECRETS = ("hunter2", "client-key", "admin-key", "upstream-key")


def isolate_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty folder and unset the variables that are settings."""
    monkeypatch.chdir(folder)
    for variable in (*VARIABLES, "TOOLSPEAK_CONFIG"):
        monkeypatch.delenv(variable, raising=False)


def load_text(
    text: str, environ: Mapping[str, str] | None = None, name: str = "a.toml"
) -> LoadedConfig:
    """Load a file of this text, in an environment that holds nothing else."""
    path = Path(name)
    path.write_text(text)
    return read_config(path, environ or {})


def load_invalid(
    text: str, environ: Mapping[str, str] | None = None, name: str = "a.toml"
) -> ConfigError:
    """Return the error of a file that cannot be loaded."""
    with pytest.raises(ConfigError) as caught:
        load_text(text, environ, name)
    return caught.value


def load_everything() -> Config:
    Path("model.gguf").write_bytes(b"GGUF")
    result = load_text(EVERYTHING)
    assert result.warnings == ()
    return result.config
