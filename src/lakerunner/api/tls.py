"""TLS: the certificate that the servers of this process present, and how our clients verify that of another one.

Comes in: PEM files, a certificate (with the intermediate ones behind it) and its key. Goes out: what a server needs for
a new connection. What always holds: both files are used as one: a pair that cannot be used is refused before anything
starts, and a later one leaves the pair before it in force.
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
    """The key file cannot be used, or is not that of the certificate."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key. `begins` and `expires` are seconds since 1970."""

    context: ssl.SSLContext
    chain: bytes
    key: bytes = field(repr=False)
    begins: float
    expires: float

    @classmethod
    def load(cls, certificate: Path, key: Path) -> Pair:
        """Read both files; UserError if the certificate cannot be used, WrongKey if the key cannot."""
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
    """The pair that new connections get. `renew` is called by one thread, all else by any."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._state = self._look()
        self.pair = Pair.load(certificate, key)

    @property
    def key_is_open(self) -> bool:
        """Whether every user of this machine may read the key; False if its file is not there at the moment."""
        try:
            return bool(self._files[1].stat().st_mode & stat.S_IROTH)
        except OSError:
            return False

    def renew(self) -> bool:
        """Take new files, if they are others than before; return whether that was so.

        UserError, once, if they cannot be used: the pair before them stays. Files that change while they are read are
        taken the next time, since a certificate and a key of two pairs may have been read.
        """
        state = self._look()
        if state == self._state:
            return False
        try:
            pair = Pair.load(*self._files)
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
    """Return how a client verifies servers: by the CA certificates of this file, or "" for those of the system, and by
    the name that it calls them."""
    try:
        context = ssl.create_default_context(cafile=authorities or None)
    except (OSError, ssl.SSLError) as error:
        raise UserError(f"{authorities} cannot be used as CA certificates: {_reason(error)}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a certificate that is its own authority may be named too
    return context


def pinning(certificate: Path) -> ssl.SSLContext:
    """Return how a client verifies a server that shows one of these certificates, by whatever name it calls it."""
    try:
        return _verifying(certificate.read_bytes())
    except (OSError, ssl.SSLError, ValueError) as error:
        raise UserError(f"{certificate} cannot be read, or holds no certificate in PEM") from error


def _verifying(chain: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.load_verify_locations(cadata=chain.decode("ascii", "ignore"))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it is trusted itself, not only who signed it
    return context


def _server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    def refuse() -> str:
        raise WrongKey(f"{key} is encrypted: write it without a passphrase, readable to the user of the server alone")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # it costs the server much and the client little
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=refuse)  # without the callback OpenSSL asks at the terminal
    except ssl.SSLError as error:
        if error.reason in _OTHER_KEY:
            raise WrongKey(f"{key} is not the key of the certificate {certificate}") from error
        raise WrongKey(f"{key} holds no key in PEM") from error
    except OSError as error:  # replaced since it was read
        raise WrongKey(f"{certificate} or {key} cannot be read: {error.strerror}") from error
    return context


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """Return the certificate that a client of this server sees, whatever the time is."""
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
    """Return numbers that change when the file is written or replaced; none if it is not there."""
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
