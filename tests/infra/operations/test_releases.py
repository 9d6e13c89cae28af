"""A release is what its image's tags say, and the history of releases stays within a parameter."""

import pytest

from infra.operations.deployment_state import DeploymentState
from infra.operations.release import ReleaseError, newest_release, release_of, whole
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.operations.rollout_account import Account


def test_a_release_is_what_its_image_s_tags_say(account: Account) -> None:
    image, ec2 = account.image(), account.client("ec2")
    account.client("ssm").put_parameter(
        Name=account.settings.machine_image.parameter, Value=image, Type="String", Overwrite=True
    )
    release = newest_release(account.settings, account.client("ssm"), ec2)
    assert (release.image_id, release.commit, release.model_hash) == (image, "0123abcd", "b" * 12)
    assert release.manifest["service"] == "a" * 12
    with pytest.raises(ReleaseError, match="was made for fleet"):
        release_of(dev_fleet(), image, ec2)
    with pytest.raises(ReleaseError, match="has no tag peakplan:fleet"):
        release_of(account.settings, "ami-12c6146b", ec2)
    with pytest.raises(ReleaseError, match="no such machine image"):
        release_of(account.settings, "ami-0123456789abcdef0", ec2)
    with pytest.raises(ReleaseError, match="no machine image yet"):
        newest_release(dev_fleet({"machine_image.parameter": "/imagebuilder/none"}), account.client("ssm"), ec2)


def test_a_fleet_is_refused_a_release_that_its_bake_did_not_see_ready_in_time(account: Account) -> None:
    """A rollback reads releases, too, and is not refused."""
    image, ec2 = account.image(), account.client("ec2")
    release = release_of(account.settings, image, ec2)
    assert whole(account.settings, release) == release
    hasty = account.settings.model_copy(update={"boot_seconds": account.settings.boot_seconds - 1})
    with pytest.raises(ReleaseError, match=f"Write {account.settings.boot_seconds}, or run make bake"):
        whole(hasty, release_of(hasty, image, ec2))
    ec2.delete_tags(Resources=[image], Tags=[{"Key": "peakplan:boot-seconds"}])
    assert whole(hasty, release_of(hasty, image, ec2)).boot_seconds == 0, "baked before images said it"


def test_a_state_stays_within_a_parameter() -> None:
    state = DeploymentState()
    for number in range(20):
        state.begin(f"ami-{number:017x}", "0" * 16, "0" * 12)
        for cell in range(1, 16):
            state.sent(f"cell-{cell}", f"ami-{number:017x}")
        state.reject(f"ami-{number:017x}")
    assert len(state.model_dump_json(exclude_defaults=True)) < 4096
