"""`python -m infra.operations.certificate FLEET` gives a fleet a certificate of a certificate authority of your own.

No public authority issues a certificate for a private name. The authority's key and certificate are made once in
`certificates/<fleet>/`, which git ignores: keep them, and give `authority.pem` to callers. The certificate is imported
into ACM and its ARN written to the parameter that deploys read; run again, it is renewed under the same ARN. It is
tested against moto, and has not run in a real account.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.settings import FleetSettings
from infra.fleet.shards import names_in_tls
from infra.operations.command import UNUSABLE, Clients, Told, fleet_parser, operate, parameter

FOLDER = REPOSITORY_ROOT / "certificates"
AUTHORITY_DAYS, CERTIFICATE_DAYS = 3650, 390


class CertificateError(Exception):
    """A certificate that cannot be made. The message is written for operators."""


def _openssl(folder: Path, *words: str) -> None:
    try:
        done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise CertificateError("openssl is not installed, and it makes the certificate") from error
    if done.returncode:
        raise CertificateError(f"openssl {words[0]} failed in {folder}: {done.stderr.strip()}")


def issue(settings: FleetSettings, folder: Path) -> None:
    """Make the authority unless it is in `folder`, and a new key and certificate for the fleet's names."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    name, wildcard = names_in_tls(settings)
    key = ("-newkey", "rsa:3072", "-nodes", "-keyout")
    if not (folder / "authority.key").exists():
        days = ("-days", str(AUTHORITY_DAYS), "-subj", f"/CN=Peakplan {settings.name} CA")
        _openssl(folder, "req", "-x509", *key, "authority.key", "-out", "authority.pem", *days)
    _openssl(folder, "req", *key, "planner.key", "-out", "planner.csr", "-subj", f"/CN={name}")
    extensions = f"subjectAltName=DNS:{name},DNS:{wildcard}\nextendedKeyUsage=serverAuth\n"
    (folder / "planner.ext").write_text(extensions, encoding="utf-8")
    signed_by = ("-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial", "-extfile", "planner.ext")
    _openssl(
        folder, "x509", "-req", "-days", str(CERTIFICATE_DAYS), "-in", "planner.csr", *signed_by, "-out", "planner.pem"
    )
    for secret in ("authority.key", "planner.key"):
        os.chmod(folder / secret, 0o600)


def import_into(settings: FleetSettings, folder: Path, clients: Clients) -> str:
    """Import the certificate, under the ARN that the fleet's parameter has if it has one, and return the ARN."""
    ssm, name = clients("ssm"), settings.load_balancer.certificate_parameter
    read = {"Certificate": "planner.pem", "PrivateKey": "planner.key", "CertificateChain": "authority.pem"}
    asked: dict[str, Any] = {part: (folder / file).read_bytes() for part, file in read.items()}
    if there := parameter(ssm, name):
        asked["CertificateArn"] = there["Value"]
    arn = str(clients("acm").import_certificate(**asked)["CertificateArn"])
    ssm.put_parameter(Name=name, Value=arn, Type="String", Overwrite=True)
    return arn


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line. Return 1 where no certificate can be made, 2 where the fleet has an authority in ACM."""
    given = fleet_parser(__doc__).parse_args(words)

    def act(settings: FleetSettings, clients: Clients) -> Told:
        if settings.load_balancer.certificate_authority:
            print("load_balancer.certificate_authority issues this fleet's certificate: nothing to do", file=sys.stderr)
            return Told(data={"certificate": None}, code=UNUSABLE)
        folder = FOLDER / settings.name
        issue(settings, folder)
        arn = import_into(settings, folder, clients)
        authority = folder / "authority.pem"
        words = f"{arn}\ncallers trust {authority}; keep the key beside it, and renew within the year"
        return Told(words, {"certificate": arn, "authority": str(authority)})

    return operate(given, act, {CertificateError: 1})


if __name__ == "__main__":
    sys.exit(main())
