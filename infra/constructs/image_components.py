"""The parameters of Image Builder's components: the model's values, and those that each document declares."""

from __future__ import annotations

from pathlib import Path

import yaml
from aws_cdk import Stack

from infra.fleet.parts import Group
from infra.fleet.settings import FleetSettings

_AGENT_COMPONENT = "1.0.1"


def baked_on(settings: FleetSettings) -> Group:
    """Return the group whose instance type builds the image and proves what was compiled for its chip."""
    return next((group for group in settings.groups if group.engine == "neuron"), settings.groups[0])


def component_parameters(settings: FleetSettings) -> dict[str, str]:
    """Return the parameters of the container's document: the fleet file's model, for each chip of its groups."""
    model = settings.model
    compiled_for: dict[str, object] = {
        "tensor-parallel": model.tensor_parallel,
        "max-prompt-tokens": model.max_prompt_tokens,
        "max-new-tokens": model.max_plan_tokens,
        "sequence-length": model.sequence_length,
        "speculation-length": model.speculation_length,
        "batch-size": model.batch_size,
    }
    if model.context_buckets:
        compiled_for["context-buckets"] = ",".join(map(str, model.context_buckets))
    chips = dict.fromkeys(group.chip for group in [baked_on(settings), *settings.groups])
    decided = {
        "ENGINE": _engine(settings),
        "TRITON_HOSTS": "neuron",
        "TENSOR_PARALLEL": model.tensor_parallel,
        "MAX_PROMPT_TOKENS": model.max_prompt_tokens,
        "STRATEGY": model.strategy,
        "BATCH_SIZE": model.batch_size,
    }
    return {
        "CHIPS": " ".join(chips),
        "COMPILE": " ".join(f"--{name} {value}" for name, value in compiled_for.items()),
        "SETTINGS": " ".join(f"PEAKPLAN_{name}={value}" for name, value in decided.items()),
    }


def _engine(settings: FleetSettings) -> str:
    """Return what runs the replicas. Triton decodes one plan at a time; batches need the gateway's own."""
    if baked_on(settings).engine != "neuron":
        return "torch"
    return "triton" if settings.model.batch_size == 1 else "neuron"


def cloudwatch_agent(stack: Stack) -> str:
    """Return Amazon's own component that installs the CloudWatch agent, which ami/agent configures."""
    arn = f"arn:{stack.partition}:imagebuilder:{stack.region}:aws:component"
    return f"{arn}/amazon-cloudwatch-agent-linux/{_AGENT_COMPONENT}"


def declared_parameters(document: Path) -> list[str]:
    """Return the parameters that a component's document declares; Image Builder refuses any other."""
    content = yaml.safe_load(document.read_text(encoding="utf-8"))
    return [name for parameter in content.get("parameters", []) for name in parameter]
