"""Callers' limits: what hosts are told of them, and limits that a caller's own share would break."""

import pytest
from pydantic import ValidationError

from infra.fleet.caller_limits import caller_environment, full_host_rate
from service.settings.groups import AuthSettings
from tests.infra.fleet.fleets import dev_fleet

ASSISTANT = {"name": "assistant", "cidrs": ["10.32.0.0/16"], "share": 0.9}
SEARCH = {"name": "search-page", "accounts": ["111122223333"], "share": 0.1}
MTLS = {"load_balancer.authentication": {"method": "mtls", "trust_bundle": "s3://trust-{account}/authorities.pem"}}
JWT = {
    "load_balancer.authentication": {
        "method": "jwt",
        "issuer": "https://issuer.example",
        "jwks": "https://issuer.example/keys",
        "caller_claim": "client_id",
    }
}


def understood(environment: dict[str, str]) -> AuthSettings:
    """The environment as the service reads it."""
    return AuthSettings.model_validate(
        {name.removeprefix("PEAKPLAN_").lower(): value for name, value in environment.items()}
    )


def test_hosts_know_callers_by_what_the_load_balancer_verifies() -> None:
    limited = {"callers": [ASSISTANT | {"rate": 100}, SEARCH]}
    certified = understood(caller_environment(dev_fleet(MTLS | limited)))
    assert (certified.caller_from, certified.rates) == ("certificate", {"assistant": 100.0})
    tokened = understood(caller_environment(dev_fleet(JWT | limited)))
    assert (tokened.caller_from, tokened.caller_claim) == ("token", "client_id")


def test_without_authentication_networks_name_the_callers() -> None:
    told = understood(caller_environment(dev_fleet({"callers": [ASSISTANT, SEARCH]})))
    assert told.caller_from == "forwarded"
    assert [(name, str(network)) for name, network in told.networks] == [
        ("assistant", "10.32.0.0/16"),
        ("privatelink", "10.40.0.0/16"),
    ]


def test_a_limit_on_a_caller_that_nobody_can_know_is_refused() -> None:
    limited = [ASSISTANT, SEARCH | {"rate": 100}]
    with pytest.raises(ValidationError, match="search-page comes by PrivateLink alone"):
        dev_fleet({"callers": limited})
    assert dev_fleet(MTLS | {"callers": limited}).callers[1].rate == 100


def test_a_limit_below_a_caller_s_own_share_is_refused_with_the_number() -> None:
    fleet = dev_fleet(MTLS | {"callers": [ASSISTANT, SEARCH]})
    needed = full_host_rate(fleet, fleet.callers[0], fleet.groups[0])
    assert needed == pytest.approx(0.9 * 2 / 0.040)  # two replicas, 40 ms a plan, nine tenths of them the assistant's
    dev_fleet(MTLS | {"callers": [ASSISTANT | {"rate": needed}, SEARCH]})
    with pytest.raises(ValidationError, match=rf"40 a second is less than the {needed:.0f}"):
        dev_fleet(MTLS | {"callers": [ASSISTANT | {"rate": 40}, SEARCH]})
