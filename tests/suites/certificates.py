"""Throw-away certificates: an authority, and what it issues for servers of a test."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from lakerunner.api.tls import Certificate

NAMES = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Files:
    """A certificate and its key, in PEM, and the certificate of the authority that signed it."""

    certificate: Path
    key: Path
    authority: Path

    @property
    def loaded(self) -> Certificate:
        return Certificate(self.certificate, self.key)

    def replace(self, other: Files) -> None:
        """Put other ones in the place of these, as a renewal does."""
        self.certificate.write_bytes(other.certificate.read_bytes())
        self.key.write_bytes(other.key.read_bytes())


@cache
def throw_away() -> Authority:
    """The authority of this process of tests."""
    return Authority(Path(tempfile.mkdtemp(prefix="lakerunner-authority-")))


class Authority:
    """Signs certificates and writes them below its directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.file = directory / "ca.pem"
        self._directory = directory
        self._key = generate_private_key(SECP256R1())
        self._name = _named("Throw-away CA")
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        made = _builder(self._name, self._key, timedelta(days=1)).issuer_name(self._name)
        made = made.add_extension(constraints, critical=True)
        self.file.write_bytes(made.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    @property
    def trust(self) -> ssl.SSLContext:
        """For clients that know this authority and no other."""
        return ssl.create_default_context(cafile=self.file)

    @cached_property
    def files(self) -> Files:
        """Of a server on this machine."""
        return self.issue("server")

    def issue(
        self,
        name: str,
        *names: str,
        valid: timedelta = timedelta(days=1),
        passphrase: str = "",
    ) -> Files:
        """Write NAME.pem and NAME.key; for a time that ends `valid` from now, which may lie in the past."""
        key = generate_private_key(SECP256R1())
        alternatives = [_alternative(one) for one in names or NAMES]
        made = _builder(_named(name), key, valid).issuer_name(self._name)
        made = made.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        files = Files(self._directory / f"{name}.pem", self._directory / f"{name}.key", self.file)
        files.certificate.write_bytes(made.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        encryption = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
        files.key.touch(0o600)
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return files


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(name: x509.Name, key: EllipticCurvePrivateKey, valid: timedelta) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + valid) - timedelta(days=1))
        .not_valid_after(now + valid)
    )
