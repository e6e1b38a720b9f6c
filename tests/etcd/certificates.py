"""Certificates for tests: one authority, one server, one client a user."""

from pathlib import Path

import trustme


class Authority:
    """A certificate authority, and what it issued, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._authority = trustme.CA()
        self.certificate = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.certificate))

    def issue(self, name: str) -> tuple[Path, Path]:
        """Return certificate and key of *name*, good for a client and a server on loopback.

        A server has no common name: etcd would take it for a user's.
        """
        common_name = None if name == "server" else name
        issued = self._authority.issue_cert("127.0.0.1", "localhost", common_name=common_name)
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(str(certificate))
        issued.private_key_pem.write_to_path(str(key))
        return certificate, key
