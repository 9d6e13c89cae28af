"""Fixtures of the infrastructure tests."""

from tests.infra.moto_server import moto_server as moto_server
from tests.infra.operations.rollout_account import account as account
