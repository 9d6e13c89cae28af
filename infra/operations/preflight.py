"""`python -m infra.operations.preflight FLEET` says whether this account can run the fleet in its region.

It changes nothing. It compares quotas with the fleet's maximum, what EC2 holds reserved with what the fleet file
reserves at this moment, and looks for zones, certificate, machine images, parameters, the bootstrap stack and
everything that the fleet file names by id. It prints what is there, what lacks and how to get it. The exit code is 1
where the deploy could not work, and 2 where AWS cannot be asked. It is tested against moto and the shapes of AWS's own
API descriptions, and has not run in a real account.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from botocore.exceptions import ClientError

from infra.fleet.calendar import reserved
from infra.fleet.cost import volume_gib
from infra.fleet.images import images
from infra.fleet.parts import TAG
from infra.fleet.settings import FleetSettings
from infra.fleet.shards import names_in_tls
from infra.operations.command import Clients, Told, fleet_parser, operate, parameter
from infra.operations.quotas import A_SECOND, AT_ONCE, granted, needs, request, rushes, zone_needs
from infra.operations.release import ReleaseError, newest_release
from infra.operations.teardown import cells_standing, reservations_of


@dataclass(frozen=True)
class Holding:
    """The instances of one type that are reserved in one zone, and that should be; `event` is the one that is open."""

    instance_type: str
    zone: str
    held: int
    wanted: int
    event: str


def holdings(settings: FleetSettings, clients: Clients, now: datetime) -> Iterator[Holding]:
    """Yield each zone's holding of every group that reserves, while an event is open, for the cells that stand."""
    groups = [group for group in settings.groups if group.reserve]
    cells = [cell for cell in cells_standing(settings, clients("cloudformation")) if cell in settings.cell_names]
    if not groups or not cells:
        return
    held: Counter[tuple[str, str]] = Counter()
    for reservation in reservations_of(settings, clients("ec2"), cells):
        held[reservation["InstanceType"], reservation["AvailabilityZone"]] += reservation["TotalInstanceCount"]
    for group in groups:
        open_now = [event for event in reserved(settings, group) if event.opens <= now < event.closes]
        for zone in settings.availability_zones if open_now else ():
            wanted = sum(event.instances for event in open_now) * len(cells)
            named = " and ".join(event.event for event in open_now)
            yield Holding(group.instance_type, zone, held[group.instance_type, zone], wanted, named)


BOOTSTRAP_PARAMETER, BOOTSTRAP_VERSION = "/cdk-bootstrap/hnb659fds/version", 6  # the CDK's default synthesizer
CERTIFICATE_DAYS = 30


class Verdict(StrEnum):
    """The consequence of a finding for the deploy."""

    GOOD = "ok"
    NOTE = "note"
    LACKS = "LACKS"


@dataclass(frozen=True)
class Finding:
    """One finding of the inspection; `remedy` is what a person can do about it."""

    verdict: Verdict
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.verdict:<6}{self.what}" + (f"\n      -> {self.remedy}" if self.remedy else "")


def _judged(is_good: bool, what: str, remedy: str, *, good: str = "") -> Finding:
    """Return that something is there (in the words of `good` where these differ), or that it lacks."""
    return Finding(Verdict.GOOD, good or what) if is_good else Finding(Verdict.LACKS, what, remedy)


Check = Callable[[FleetSettings, Clients], Iterator[Finding]]


def _quotas(settings: FleetSettings, clients: Clients) -> Iterator[Finding]:
    quotas = clients("service-quotas")
    for need in needs(settings):
        grant = granted(need, quotas)
        value = grant.value if grant else need.default
        what = f"{need.name}: {need.amount:g} needed ({need.arithmetic})"
        remedy = request(grant, need.amount) if grant else "ask AWS support: Service Quotas does not list it"
        said = f"{what}, {value:g} granted"
        yield _judged(need.amount <= value, said, remedy, good=said + ("" if grant else " by default"))


def _zones(settings: FleetSettings, clients: Clients) -> Iterator[Finding]:
    offerings = clients("ec2").get_paginator("describe_instance_type_offerings")
    for group in settings.groups:
        chosen = [{"Name": "instance-type", "Values": [group.instance_type]}]
        pages = offerings.paginate(LocationType="availability-zone", Filters=chosen)
        there = {offer["Location"] for page in pages for offer in page["InstanceTypeOfferings"]}
        missing, kind = sorted(set(settings.availability_zones) - there), group.instance_type
        yield _judged(
            not missing,
            f"{kind} is not offered in {', '.join(missing)}",
            f"availability_zones: choose from {', '.join(sorted(there)) or 'another region'}",
            good=f"{kind} is offered in every zone",
        )


def _parameter(name: str, clients: Clients) -> str | None:
    found = parameter(clients("ssm"), name)
    return str(found["Value"]) if found else None


def _bootstrap(settings: FleetSettings, clients: Clients) -> Iterator[Finding]:
    command = "peakplan fleet bootstrap"
    version = _parameter(BOOTSTRAP_PARAMETER, clients)
    if version is None:
        yield Finding(Verdict.LACKS, f"{settings.region} is not bootstrapped for the CDK", command)
    else:
        old = f"the bootstrap stack is version {version}, {BOOTSTRAP_VERSION} needed"
        yield _judged(int(version) >= BOOTSTRAP_VERSION, old, command, good=f"bootstrap stack version {version}")


def _certificate(settings: FleetSettings, clients: Clients) -> Iterator[Finding]:
    wanted = settings.load_balancer
    names = names_in_tls(settings)
    if wanted.certificate_authority:
        described = clients("acm-pca").describe_certificate_authority(
            CertificateAuthorityArn=wanted.certificate_authority
        )["CertificateAuthority"]
        said = f"the private CA is {described['Status']}"
        yield _judged(described["Status"] == "ACTIVE", said, "activate it, or name another")
        return
    arn = _parameter(wanted.certificate_parameter, clients)
    if arn is None:
        own = f"import one for {' and '.join(names)} into ACM"
        how = f"peakplan fleet certificate, {own}, or name a private CA (docs/fleet.md)"
        yield Finding(Verdict.LACKS, f"no certificate: the parameter {wanted.certificate_parameter} is not there", how)
        return
    found = clients("acm").describe_certificate(CertificateArn=arn)["Certificate"]
    covered = {found["DomainName"], *found.get("SubjectAlternativeNames", [])}
    if missing := [name for name in names if name not in covered]:
        what = f"the certificate is for {', '.join(sorted(covered))}, not for {', '.join(missing)}"
        yield Finding(Verdict.LACKS, what, "issue or import one that has every name: callers' TLS would refuse it")
    elif found["Status"] != "ISSUED":
        how = "nobody can prove a private name to a public CA: import a certificate or use a private CA (docs/fleet.md)"
        yield Finding(Verdict.LACKS, f"the certificate is {found['Status']}", how)
    elif (ends := found.get("NotAfter")) and ends < datetime.now(UTC) + timedelta(days=CERTIFICATE_DAYS):
        yield Finding(Verdict.LACKS, f"the certificate ends on {ends:%Y-%m-%d}", "import the next one under its ARN")
    else:
        yield Finding(Verdict.GOOD, f"certificate for {' and '.join(names)}")


def _image(settings: FleetSettings, clients: Clients) -> Iterator[Finding]:
    needed = images(settings)
    for image in needed:
        base = _parameter(image.base_parameter, clients)
        if base is None:
            which = (
                f"Neuron base image of SDK {image.base_sdk}" if image.base_sdk else f"{image.architecture} base image"
            )
            what = f"no base image: the parameter {image.base_parameter} is not there"
            yield Finding(Verdict.LACKS, what, f"peakplan fleet bootstrap puts the {which} there")
        else:
            described = clients("ec2").describe_images(ImageIds=[base])["Images"]
            yield from _root_volume(settings, described[0], f"base image {base}") if described else ()
    found = {image.parameter: _parameter(image.parameter, clients) for image in needed}
    lacking = [name for name, image_id in found.items() if image_id is None]
    for name in lacking:
        how = "peakplan fleet bake makes the image pipeline and bakes one"
        yield Finding(Verdict.NOTE, f"no machine image yet: the parameter {name} is not there", how)
    if lacking:
        return
    try:
        release = newest_release(settings, clients("ssm"), clients("ec2"))
    except ReleaseError as error:
        yield Finding(Verdict.LACKS, str(error), "bake one with the image pipeline")
        return
    for image_id in found.values():
        described = clients("ec2").describe_images(ImageIds=[image_id])["Images"][0]
        yield from _root_volume(settings, described, f"release {release}")


def _root_volume(settings: FleetSettings, image: dict[str, Any], named: str) -> Iterator[Finding]:
    devices = {each["DeviceName"]: each.get("Ebs", {}) for each in image.get("BlockDeviceMappings", [])}
    gib = devices.get(image.get("RootDeviceName", ""), {}).get("VolumeSize", 0)
    smallest = min(volume_gib(settings, group) for group in settings.groups)
    if image.get("State", "available") != "available":
        yield Finding(Verdict.LACKS, f"{named} is {image['State']}", "wait for it, or bake another")
    elif gib > smallest:
        how = f"machine_image.root_gib: {gib}"
        yield Finding(Verdict.LACKS, f"{named} has a root of {gib} GiB, and hosts get {smallest}", how)
    else:
        yield Finding(Verdict.GOOD, named)


def _named_by_id(settings: FleetSettings, clients: Clients) -> Iterator[Finding]:
    """Yield a finding for each resource that the fleet file names and others created."""
    ec2, access, version = clients("ec2"), settings.access, None
    asked: list[tuple[str, Callable[[], Any]]] = []
    if gateway := access.transit_gateway:
        asked.append((gateway, lambda: ec2.describe_transit_gateways(TransitGatewayIds=[gateway])))
    if peering := access.peering:
        asked.append((peering, lambda: ec2.describe_vpc_peering_connections(VpcPeeringConnectionIds=[peering])))
    if settings.load_balancer.authentication.trust_bundle:
        account = clients("sts").get_caller_identity()["Account"]
        bucket, key, version = settings.load_balancer.authentication.trusted(account)
        owned = {"Bucket": bucket, "Key": key, "ExpectedBucketOwner": account}  # refuses another account's bucket
        asked.append((f"s3://{bucket}/{key}", lambda: clients("s3").head_object(**owned)))
    if log_key := settings.log_key:
        asked.append((log_key, lambda: clients("kms").describe_key(KeyId=log_key)))
    for name, ask in asked:
        try:
            newest = ask().get("VersionId")  # of a trust bundle, where its bucket keeps versions
        except ClientError as error:
            said = error.response["Error"].get("Message") or error.response["Error"]["Code"]
            yield Finding(Verdict.LACKS, f"{name}: {said}", "make it, or correct the fleet file")
            continue
        how = f"trust_bundle: s3://...?versionId={newest}, for else a deploy changes nothing"
        old = f"{name}: the fleet file does not name the newest version"
        yield _judged(not newest or newest == version, old, how, good=f"{name} is there")


def _capacity(settings: FleetSettings, clients: Clients) -> Iterator[Finding]:
    """Yield what EC2 must give by zone and type, which no quota promises, and whether it accepts that many launches."""
    del clients
    for need in zone_needs(settings):
        promised = f"{need.reserved} reserved in the largest event" if need.reserved else "none reserved"
        what = (
            f"{need.instance_type}, each zone: at most {need.running} running, {need.zone_lost} with a zone lost, "
            f"{need.from_pool} of them stopped in warm pools; {promised}"
        )
        how = "" if need.reserved else "a quota is no capacity: reserve: true in the group has EC2 promise events'"
        yield Finding(Verdict.GOOD if need.reserved else Verdict.NOTE, what, how)
    for rush in rushes(settings):
        what = f"{rush.what}: {rush.instances} launches, accepted in {rush.seconds:.0f} s of {rush.within:.0f}"
        how = f"ask AWS support for more than {AT_ONCE} RunInstances tokens and {A_SECOND} a second, or a longer lead"
        yield _judged(rush.fits, what, how)


def _reservations(settings: FleetSettings, clients: Clients) -> Iterator[Finding]:
    for holding in holdings(settings, clients, datetime.now(UTC)):
        of = f"{holding.held} of {holding.wanted} reserved while {holding.event} is open"
        what = f"{holding.instance_type} in {holding.zone}: {of}"
        how = "docs/runbooks/reservations.md: EC2 refused to reserve them, or somebody changed the reservation"
        yield _judged(holding.held >= holding.wanted, what, how)


def _subscriptions(settings: FleetSettings, clients: Clients) -> Iterator[Finding]:
    """Yield the subscribers to pages and tickets who have not confirmed; a first deploy creates the topics."""
    ours = {f"peakplan-{settings.name}-{name}" for name in ("pages", "tickets")}
    for page in clients("sns").get_paginator("list_subscriptions").paginate():
        for each in page["Subscriptions"]:
            waits = each["SubscriptionArn"] == "PendingConfirmation"
            if waits and each["TopicArn"].rpartition(":")[2] in ours:
                how = "confirm it by the link in its e-mail, or name a pager's https:// address, which needs no click"
                yield Finding(Verdict.LACKS, f"{each['Endpoint']} has not confirmed its subscription", how)


def _payer(settings: FleetSettings, clients: Clients) -> Iterator[Finding]:
    """Yield whether the account may watch for unusual cost by tags, which a member of an organisation may not."""
    if not settings.cost_anomalies:
        return
    organizations, pays = clients("organizations"), None
    with suppress(organizations.exceptions.AWSOrganizationsNotInUseException):  # then it pays for itself
        pays = organizations.describe_organization()["Organization"]["MasterAccountId"]
    if pays not in (None, clients("sts").get_caller_identity()["Account"]):
        how = f"cost_anomalies: false; account {pays}, which pays, can watch by the tag {TAG}"
        yield Finding(Verdict.LACKS, "a member account cannot watch for unusual cost by tags", how)


def _account(settings: FleetSettings, clients: Clients) -> Iterator[Finding]:
    account = clients("sts").get_caller_identity()["Account"]
    other, how = f"these credentials are of account {account}", f"use those of {settings.account}"
    yield _judged(settings.account in (None, account), other, how, good=f"account {account}, {settings.region}")


CHECKS: tuple[Check, ...] = (
    _account,
    _bootstrap,
    _zones,
    _certificate,
    _image,
    _named_by_id,
    _quotas,
    _capacity,
    _reservations,
    _subscriptions,
    _payer,
)


def inspect(settings: FleetSettings, clients: Clients) -> list[Finding]:
    """Return every finding. Raise botocore's errors where AWS cannot be reached or denies access."""
    return [finding for check in CHECKS for finding in check(settings, clients)]


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = fleet_parser(__doc__).parse_args(words)

    def act(settings: FleetSettings, clients: Clients) -> Told:
        findings = inspect(settings, clients)
        lacking = sum(finding.verdict is Verdict.LACKS for finding in findings)
        verdict = f"cannot be deployed: {lacking} lack" if lacking else "can be deployed"
        words = "\n".join([*map(str, findings), "", f"{settings.name} {verdict}"])
        data = {"can_be_deployed": not lacking, "findings": [asdict(finding) for finding in findings]}
        return Told(words, data, code=1 if lacking else 0)

    return operate(given, act, {})


if __name__ == "__main__":
    sys.exit(main())
