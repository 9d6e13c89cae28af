"""Step Functions in the emulator: machines that stacks make are interpreted too, by moto's own interpreter."""

from moto.core.config import default_user_config
from moto.stepfunctions import models
from moto.stepfunctions.parser.models import stepfunctions_parser_backends


def run_state_machines() -> None:
    """Extend moto in this process."""
    default_user_config["stepfunctions"]["execute_state_machine"] = True
    setattr(models, "stepfunctions_backends", stepfunctions_parser_backends)  # noqa: B010
