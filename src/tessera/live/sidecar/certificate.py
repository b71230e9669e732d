"""Which certificate do clients get, and since when?"""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from tessera.core.errors import ConfigError, Problem

POLL_S: Final = 5.0
"""How often the files are looked at; a look is two ``stat``."""

_log = logging.getLogger("tessera.sidecar")


class Certificate:
    """``tls.crt`` and ``tls.key`` of a folder, read again when they change, as a cluster's secrets do."""

    def __init__(self, folder: Path) -> None:
        """Reads them.

        Raises:
            ConfigError: they are not there, or are none.
        """
        self._files = (folder / "tls.crt", folder / "tls.key")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """For every connection that begins from now on."""
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._stamps = self._seen()
            self.context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            message = f"{folder}: {error}; expected a folder with tls.crt and tls.key"
            raise ConfigError([Problem("--cert-path", message)]) from None

    async def watch(self, poll_s: float = POLL_S) -> None:
        """Follow the files for ever; the old certificate stays while the new files are none."""
        while True:
            await asyncio.sleep(poll_s)
            try:
                stamps = self._seen()
                if stamps != self._stamps:
                    self._check()
                    self.context.load_cert_chain(*self._files)
                    _log.info("clients get the new certificate of %s", self._files[0])
                    self._stamps = stamps
            except (OSError, ssl.SSLError) as error:
                _log.warning("%s: clients keep the old certificate: %s", self._files[0], error)

    def _check(self) -> None:
        """Try the files where a failure does no harm: a context that half took them would be of no use."""
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)

    def _seen(self) -> tuple[tuple[int, int], ...]:
        return tuple((status.st_mtime_ns, status.st_ino) for status in (path.stat() for path in self._files))
