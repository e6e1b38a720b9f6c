"""Certificates for tests, made by openssl: one authority, one server, one client a user."""

import shutil
import subprocess
from pathlib import Path

import pytest


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / "ca.pem"
        self._key = folder / "ca.key"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", "/CN=test authority"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", str(self._key), "-out", str(self.certificate)),
        )

    def issue(self, name: str) -> tuple[Path, Path]:
        """Return certificate and key of *name*, good for a client and a server on loopback."""
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n"
        )
        subject = f"/CN={name}" if name != "server" else "/O=test"
        _openssl(
            *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-subj", subject, "-keyout", str(key), "-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-in", str(request), "-days", "2", "-CAcreateserial"),
            *("-CA", str(self.certificate), "-CAkey", str(self._key)),
            *("-extfile", str(extensions), "-out", str(certificate)),
        )
        return certificate, key


def _openssl(*args: str) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on PATH")
    subprocess.run(["openssl", *args], check=True, capture_output=True, timeout=30)
