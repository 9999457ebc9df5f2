"""Who may look into the inspector: on loopback whoever has the token that was made at the start;
elsewhere, or where there is one, whoever has the admin key; else nobody."""

from __future__ import annotations

import hmac

from ..config.hosts import is_loopback
from ..config.settings import Config


class Access:
    """What opens the inspector."""

    def __init__(self, config: Config, token: str = "") -> None:
        is_local = is_loopback(config.server.host)
        self._key = config.server.admin_key or (token if is_local else "")
        self._is_separate = self._key not in config.server.keys
        self.token = "" if config.server.admin_key else self._key
        """What may stand in the address that is printed; an admin key may not."""
        self.why_closed = self._why_closed(config)

    @property
    def is_open(self) -> bool:
        """Whether anybody can look."""
        return not self.why_closed

    def opens(self, shown: str) -> bool:
        """Whether that is the key."""
        return hmac.compare_digest(shown.encode("utf-8", "replace"), self._key.encode())

    def _why_closed(self, config: Config) -> str:
        if not config.inspector.enabled:
            return "`inspector.enabled` is false"
        if not self._key:
            return "other machines can reach this gateway, so it needs `server.admin_key`"
        if not self._is_separate:
            return "`server.admin_key` is a key of clients, too; it has to be another"
        return ""

    def address(self, url: str) -> str:
        """Where the page is. What stands behind `#` never leaves the browser."""
        return f"{url}/#token={self.token}" if self.token else f"{url}/"
