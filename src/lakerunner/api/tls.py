"""TLS: the certificate that the servers of this process present, and how our clients verify other servers.

The certificate (followed by its intermediate certificates) and its key are PEM files that are used as a pair. A pair
that cannot be used is refused before anything starts; if renewed files cannot be used, the pair before them stays.
"""

from __future__ import annotations

import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakerunner.model.errors import UserError

# OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which the ssl module does not name.
_NO_CHECK_TIME = 0x200000
_OTHER_KEY = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")


class WrongKey(UserError):
    """The key file cannot be used, or does not belong to the certificate."""


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key. `begins` and `expires` are seconds since 1970."""

    context: ssl.SSLContext
    chain: bytes
    key: bytes = field(repr=False)
    begins: float
    expires: float

    @classmethod
    def load(cls, certificate: Path, key: Path) -> KeyPair:
        """Read both files; raise UserError if the certificate cannot be used, WrongKey if the key cannot."""
        chain = _read(certificate, UserError)
        try:
            anchors = _verifying(chain)
        except (ssl.SSLError, ValueError) as error:
            raise UserError(f"{certificate} holds no certificate in PEM") from error
        secret = _read(key, WrongKey)
        context = _server_context(certificate, key)
        try:
            shown = _shake_hands(context, anchors)
        except ssl.SSLError as error:
            raise UserError(f"{certificate} cannot be used by a server: {_reason(error)}") from error
        begins, expires = (ssl.cert_time_to_seconds(shown[name]) for name in ("notBefore", "notAfter"))
        return cls(context, chain, secret, begins, expires)


class Certificate:
    """The pair for new connections. One thread calls `renew`, any thread may use the rest."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._state = self._look()
        self.pair = KeyPair.load(certificate, key)

    @property
    def key_is_open(self) -> bool:
        """Whether every user of this machine may read the key; False if its file does not exist now."""
        try:
            return bool(self._files[1].stat().st_mode & stat.S_IROTH)
        except OSError:
            return False

    def renew(self) -> bool:
        """Load the files if they changed; return whether they did.

        Raise UserError, once for each change, if they cannot be used: the pair before them stays. Files that change
        while they are read are loaded the next time, because a certificate and a key of two pairs may have been read.
        """
        state = self._look()
        if state == self._state:
            return False
        try:
            pair = KeyPair.load(*self._files)
        finally:
            if self._look() == state:
                self._state = state
        if self._state != state:
            return False
        self.pair = pair
        return True

    def _look(self) -> tuple[tuple[int, ...], ...]:
        return tuple(_look_at(path) for path in self._files)


def trusting(authorities: str) -> ssl.SSLContext:
    """Return a client context that verifies servers by these CA certificates ("" for those of the system) and by the
    host name in the URL."""
    try:
        context = ssl.create_default_context(cafile=authorities or None)
    except (OSError, ssl.SSLError) as error:
        raise UserError(f"{authorities} cannot be used as CA certificates: {_reason(error)}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the file may also name a server's own certificate
    return context


def pinning(certificate: Path) -> ssl.SSLContext:
    """Return a client context that accepts exactly these certificates, under any host name."""
    try:
        return _verifying(certificate.read_bytes())
    except (OSError, ssl.SSLError, ValueError) as error:
        raise UserError(f"{certificate} cannot be read, or holds no certificate in PEM") from error


def _verifying(chain: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.load_verify_locations(cadata=chain.decode("ascii", "ignore"))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trust the certificate itself, not only its issuer
    return context


def _server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    def refuse() -> str:
        raise WrongKey(f"{key} is encrypted: write it without a passphrase, readable to the user of the server alone")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # it costs the server much and an attacker little
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without the callback OpenSSL would prompt for a passphrase on the terminal.
        context.load_cert_chain(certificate, key, password=refuse)
    except ssl.SSLError as error:
        if error.reason in _OTHER_KEY:
            raise WrongKey(f"{key} is not the key of the certificate {certificate}") from error
        raise WrongKey(f"{key} holds no key in PEM") from error
    except OSError as error:  # replaced since it was read
        raise WrongKey(f"{certificate} or {key} cannot be read: {error.strerror}") from error
    return context


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """Do a handshake in memory; return the certificate that a client sees, even if it is not valid now."""
    client.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [asking, serving]
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
    return asking.getpeercert() or {}


def _look_at(path: Path) -> tuple[int, ...]:
    """Return numbers that change when the file is written or replaced; () if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read(path: Path, wrong: type[UserError]) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise wrong(f"{path} cannot be read: {error.strerror}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
