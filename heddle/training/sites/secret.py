"""What all sites of a run and their meeting place share: one file with a private key and its own certificate.

Each end of a connection shows the certificate and proves with TLS 1.3 that it has the key. Nobody else's certificate is
accepted, whoever signed it. Nothing about the key can be guessed from what travels.
"""

from __future__ import annotations

import os
import shutil
import ssl
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from heddle.errors import HeddleError

SECRET_FILE = "HEDDLE_SECRET_FILE"  # noqa: S105 (the variable that names it)
LARGEST = 1 << 16  # bytes of it
NO_CHECK_TIME = 0x200000  # OpenSSL's flag of that name: a site whose clock is wrong has the same file
MAKE = f"Make one with `heddle meeting --new-secret FILE`, copy it to every site, and set {SECRET_FILE} to its path."


@dataclass(frozen=True)
class Secret:
    """What a connection is made with, at either end."""

    certificate: bytes  # that the other end must show, too
    server: ssl.SSLContext
    client: ssl.SSLContext


def shared_secret() -> Secret:
    """The secret that all sites and their meeting place were given."""
    path = os.environ.get(SECRET_FILE, "")
    if not path:
        old = " (HEDDLE_SECRET is no longer read.)" if "HEDDLE_SECRET" in os.environ else ""
        raise HeddleError(
            f"There is no shared secret: {SECRET_FILE} is not set.{old}",
            "Sites prove to each other that they have it, so that no stranger joins.",
            MAKE,
        )
    return read_secret(Path(path))


def read_secret(path: Path) -> Secret:
    """The secret in a file."""
    try:
        text = _text(path)
        certificate = ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE") :].split("-----END")[0] + _END)
        contexts = [_context(path, text, kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)]
    except (OSError, ValueError) as error:  # of which ssl's errors and those of decoding are some
        why = getattr(error, "strerror", None) or str(error)
        if isinstance(error, ssl.SSLError) or not isinstance(error, OSError):
            why = "It does not hold a private key followed by its certificate, as text."
        raise HeddleError(f"The secret cannot be read from {str(path)!r}.", f"{why.rstrip('.')}.", MAKE) from None
    return Secret(certificate, *contexts)


_END = "-----END CERTIFICATE-----"


def _text(path: Path) -> str:
    """What a file holds. A pipe would never end, nor would a device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("It is not a regular file.")
        found = file.read(LARGEST + 1)
    if len(found) > LARGEST:
        raise OSError(f"It has more than {LARGEST} bytes.")
    return found.decode("ascii")


def _context(path: Path, text: str, kind: int) -> ssl.SSLContext:
    made = ssl.SSLContext(kind)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags = ssl.VerifyFlags(made.verify_flags | NO_CHECK_TIME)
    made.load_cert_chain(path, password="")  # or a key with a password would be asked for at the terminal
    made.load_verify_locations(cadata=text[text.index("-----BEGIN CERTIFICATE") :])
    if kind == ssl.PROTOCOL_TLS_SERVER:
        made.num_tickets = 0  # no connection is taken up again
    return made


def new_secret(path: Path) -> None:
    """Make a secret; no file that exists is overwritten, and nobody else can read the new one."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise HeddleError(
            "A secret cannot be made here.", "That takes the `openssl` command, which is not installed.", "Install it."
        )
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "-", "-out", "-"]
    command = [openssl, "req", "-x509", *curve, "-days", "36500", "-subj", "/CN=heddle"]
    made = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if made.returncode:
        last = made.stderr.strip().splitlines()[-1:] or ["It said nothing"]
        raise HeddleError("A secret cannot be made here.", f"`openssl req` failed: {last[0]}.", "Try another machine.")
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(made.stdout)
    except OSError as error:
        raise HeddleError(
            f"The secret cannot be written to {str(path)!r}.", f"{error.strerror}.", "Name a file that does not exist."
        ) from None
