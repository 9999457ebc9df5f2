"""Reads the files that requests need later, while there are file handles for that."""

from __future__ import annotations

import mimetypes

from ..config.settings import Config
from ..security.refusals import load_vocabulary
from ..upstream.http_pool import load_certificates
from .inspector_routes import load_page_files


def load_files(config: Config) -> None:
    """Read and cache all files. That takes a moment, so it is done in a thread."""
    mimetypes.init()
    load_page_files()
    load_vocabulary()
    upstreams = config.upstreams.values()
    if any(one.provider or one.base_url.startswith("https:") for one in upstreams):
        load_certificates()
