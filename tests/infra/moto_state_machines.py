"""Step Functions in the emulator: machines that stacks make are interpreted too, by moto's own interpreter.

What an account refuses is refused: a state's name that a machine has twice, within its maps too (Amazon States
Language: "state names MUST be unique within the scope of the whole state machine"; DUPLICATE_STATE_NAME in the API
reference of ValidateStateMachineDefinition).

Waits are short: an execution looks again after a fraction of a second.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from moto.core.config import default_user_config
from moto.stepfunctions import models
from moto.stepfunctions.parser.api import InvalidDefinition
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import state_task_service_callback
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_sfn import (
    StateTaskServiceSfn,
)
from moto.stepfunctions.parser.asl.component.state.wait.wait_function.wait_function import WaitFunction
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser
from moto.stepfunctions.parser.asl.parse.preprocessor import Preprocessor
from moto.stepfunctions.parser.models import StepFunctionsParserBackend, stepfunctions_parser_backends

LONGEST_WAIT_SECONDS = 0.3


def run_state_machines() -> None:
    """Extend moto in this process."""
    default_user_config["stepfunctions"]["execute_state_machine"] = True
    setattr(models, "stepfunctions_backends", stepfunctions_parser_backends)  # noqa: B010
    validate = StepFunctionsParserBackend._validate_definition

    def refused(definition: str) -> None:
        validate(definition)
        if twice := [name for name, times in Counter(state_names(json.loads(definition))).items() if times > 1]:
            message = f"Invalid State Machine Definition: 'DUPLICATE_STATE_NAME: Duplicate State name: {twice[0]}'"
            raise InvalidDefinition(message=message)

    setattr(StepFunctionsParserBackend, "_validate_definition", staticmethod(refused))  # noqa: B010
    _executions_start_executions()
    _parse_once()
    setattr(WaitFunction, "_wait_interval", _wait_shortly)  # noqa: B010


def _parse_once() -> None:
    """Keep the syntax tree of each machine: every execution would parse it anew, a quarter of a second long."""
    parse, trees = AmazonStateLanguageParser.parse, dict[str, Any]()

    def parsed(machine: str) -> tuple[Any, Any]:
        if machine in trees:
            return Preprocessor().visit(trees[machine]), trees[machine]
        program, trees[machine] = parse(machine)
        return program, trees[machine]

    setattr(AmazonStateLanguageParser, "parse", staticmethod(parsed))  # noqa: B010


def _wait_shortly(_: WaitFunction, env: Environment, wait_seconds: int) -> None:
    env.program_state_event.wait(min(wait_seconds, LONGEST_WAIT_SECONDS))


def _executions_start_executions() -> None:
    """A task has names in PascalCase, Step Functions' own API in camelCase; moto takes the one for the other."""
    ask = StateTaskServiceSfn._eval_service_task

    def asked(
        self: StateTaskServiceSfn, env: Any, resource_runtime_part: Any, normalised_parameters: Any, **given: Any
    ) -> None:
        parameters = {key[0].lower() + key[1:]: value for key, value in normalised_parameters.items()}
        ask(self, env, resource_runtime_part, parameters, **given)
        told(self, env.stack[-1])

    def told(_: StateTaskServiceSfn, response: Any, **_given: Any) -> None:
        for key in list(response):
            response[key[0].upper() + key[1:]] = response.pop(key)

    setattr(StateTaskServiceSfn, "_eval_service_task", asked)  # noqa: B010
    setattr(StateTaskServiceSfn, "_normalise_response", told)  # noqa: B010
    setattr(state_task_service_callback, "_DELAY_SECONDS_SYNC_CONDITION_CHECK", 0.1)  # noqa: B010


def state_names(part: Any) -> Iterator[str]:
    """The names of a machine's states, those within its maps and branches too."""
    if isinstance(part, list):
        for each in part:
            yield from state_names(each)
    elif isinstance(part, dict):
        if isinstance(states := part.get("States"), dict) and "StartAt" in part:
            yield from states
        for each in part.values():
            yield from state_names(each)
