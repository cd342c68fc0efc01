"""Certificates for tests of TLS, made when they are needed."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates, whose files lie in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
        own = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file = folder / "authority.pem"
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, password: str | None = None) -> tuple[str, str]:
        """Return the files of a key and of a certificate, which is good for 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        signed = (
            self._builder(subject, key).add_extension(here, critical=False).sign(self._key, hashes.SHA256())
        )
        key_file, certificate_file = self._folder / f"{name}.key", self._folder / f"{name}.pem"
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password.encode())
                if password
                else serialization.NoEncryption(),
            )
        )
        certificate_file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return str(key_file), str(certificate_file)

    def client(self, certificate: tuple[str, str] | None = None) -> ssl.SSLContext:
        """Return the settings of a client that trusts this authority."""
        made = ssl.create_default_context(cafile=self.file)
        if certificate is not None:
            made.load_cert_chain(certificate[1], certificate[0])
        return made

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )
