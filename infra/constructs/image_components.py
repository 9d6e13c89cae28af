"""The parameters of Image Builder's components: the model's values, and those that each document declares.

Amazon's own components are named here, too.
"""

from __future__ import annotations

from pathlib import Path

import yaml
from aws_cdk import Stack

from infra.fleet.images import Image
from infra.fleet.settings import FleetSettings

_AGENT_COMPONENT = "1.0.1"
_NEWEST = "x.x.x"  # which Image Builder resolves when it builds


def component_parameters(settings: FleetSettings, image: Image) -> dict[str, str]:
    """Return the parameters of the container's document: the fleet file's model, for each chip of its groups."""
    model = settings.model
    compiled_for: dict[str, object] = {
        "tensor-parallel": model.tensor_parallel,
        "max-prompt-tokens": model.max_prompt_tokens,
        "max-new-tokens": model.max_plan_tokens,
        "sequence-length": model.sequence_length,
        "speculation-length": model.speculation_length,
        "batch-size": model.batch_size,
        "graph": model.graph,
    }
    if model.context_buckets:
        compiled_for["context-buckets"] = ",".join(map(str, model.context_buckets))
    chips = dict.fromkeys(group.chip for group in [image.baked_on, *image.groups])
    decided = {
        "ENGINE": _engine(settings, image),
        "TRITON_HOSTS": "neuron",
        "TENSOR_PARALLEL": model.tensor_parallel,
        "MAX_PROMPT_TOKENS": model.max_prompt_tokens,
        "STRATEGY": model.strategy,
        "BATCH_SIZE": model.batch_size,
        "DEVICE_RIGHTS": model.device_rights if image.baked_on.engine == "neuron" else "none",
        "LOST_REPLICA_SECONDS": model.lost_replica_seconds,
    }
    options = [f"--{name} {value}" for name, value in compiled_for.items()]
    return {
        "CHIPS": " ".join(chips),
        "BOOT_SECONDS": str(settings.boot_seconds),
        "COMPILE": " ".join([*options, *(["--weight-layout"] if model.weight_layout else [])]),
        "SETTINGS": " ".join(f"PEAKPLAN_{name}={value}" for name, value in decided.items()),
    }


def _engine(settings: FleetSettings, image: Image) -> str:
    """Return what runs the replicas. Triton decodes one plan at a time; batches need the gateway's own."""
    if image.baked_on.engine != "neuron":
        return "torch"
    return "triton" if settings.model.batch_size == 1 else "neuron"


def amazon_components(stack: Stack, image: Image) -> list[str]:
    """Return Amazon's own components: the CloudWatch agent, which ami/agent configures, and what the base image lacks.

    Neuron's images have the AWS CLI; Canonical's have not, and Ubuntu 24.04 has no package of it.
    """
    arn = f"arn:{stack.partition}:imagebuilder:{stack.region}:aws:component"
    agent = f"{arn}/amazon-cloudwatch-agent-linux/{_AGENT_COMPONENT}"
    return [agent] if image.architecture == "x86_64" else [agent, f"{arn}/aws-cli-version-2-linux/{_NEWEST}"]


def declared_parameters(document: Path) -> list[str]:
    """Return the parameters that a component's document declares; Image Builder refuses any other."""
    content = yaml.safe_load(document.read_text(encoding="utf-8"))
    return [name for parameter in content.get("parameters", []) for name in parameter]
