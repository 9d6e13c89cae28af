"""A fleet's replicas on vLLM instead of our own Neuron engine: the servers' launch commands and the gateway's settings.

The flags are those of the vLLM plugin for the pinned SDK (facts of aws-neuron's and vllm-project's sources, read in
November 2026; not run on hardware). That plugin drafts with EAGLE or not at all: it cannot use Medusa heads. It
has no structured outputs either, so the gateway follows each plan through its grammar and never asks for one there.

On processors, vLLM's own release serves the same export, with grammars and any draft (`on_processors`): `make
bench vllm` starts it with these arguments and measures it beside ours. A fleet's processors run our own kernels.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from infra.fleet.instances import catalogue
from infra.fleet.parts import Group, Model
from infra.fleet.settings import FleetFileError, FleetSettings

FIRST_PORT = 8100  # 8000 is the exporter's of neuron-monitor (ami/systemd)
MODEL_DIR = "/opt/peakplan/model"  # in the machine image
COMPILED_DIR = "/opt/peakplan/compiled/vllm"
# Without prefix caching the plugin makes one block of a whole sequence whatever is named; vLLM's own parser wants one
# of its sizes all the same. Prefix caching at batch 1 gives wrong outputs (the plugin's README).
_BLOCK_SIZE = 32


@dataclass(frozen=True)
class Release:
    """The vLLM release that belongs to one Neuron SDK."""

    vllm: str
    image: str


RELEASES = {
    "2.28": Release(
        "0.13.0", "public.ecr.aws/neuron/pytorch-inference-vllm-neuronx:0.13.0-neuronx-py312-sdk2.28.0-ubuntu24.04"
    )
}


@dataclass(frozen=True)
class Server:
    """One vLLM server: the cores it takes (first and last), its port, its environment and its arguments."""

    cores: tuple[int, int]
    port: int
    environment: dict[str, str]
    arguments: list[str]


def on_processors(
    folder: str,
    name: str,
    port: int,
    *,
    cores: tuple[int, int],
    length: int,
    sequences: int = 1,
    dtype: Literal["bfloat16", "float32"] = "bfloat16",
    speculation: Mapping[str, object] | None = None,
) -> Server:
    """Return a server of the export in `folder` on the processor's `cores`, the first and the last.

    `length` bounds prompt and plan. `speculation` is vLLM's own: {"method": "draft_model", "model": a folder,
    "num_speculative_tokens": n}, with "eagle3" the same, or {"method": "ngram", ...}.
    """
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_CPU_OMP_THREADS_BIND": f"{cores[0]}-{cores[1]}",
        "OMP_NUM_THREADS": str(cores[1] - cores[0] + 1),
        # It would look for the model on a hub, and tell its makers what machine this is.
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    arguments = {
        "--served-model-name": name,
        "--host": "127.0.0.1",
        "--port": str(port),
        "--dtype": dtype,
        "--max-model-len": str(length),
        "--max-num-seqs": str(sequences),
        "--structured-outputs-config": json.dumps({"backend": "guidance"}),  # it reads our grammars as they are
    }
    if speculation is not None:
        arguments["--speculative-config"] = json.dumps(dict(speculation))
    words = [word for pair in arguments.items() for word in pair]
    return Server(cores, port, environment, ["vllm", "serve", folder, "--no-enable-prefix-caching", *words])


def release(fleet: FleetSettings) -> Release:
    """Return the vLLM that belongs to the fleet's SDK. Raise FleetFileError for an SDK without a known one."""
    known = RELEASES.get(fleet.model.sdk)
    if known is None:
        raise FleetFileError(f"model.sdk: no vLLM is known for {fleet.model.sdk}; known are {', '.join(RELEASES)}")
    return known


def servers(fleet: FleetSettings, group: Group) -> list[Server]:
    """Return one server for each replica, on every NeuronCore of one instance of the group.

    Raise FleetFileError where vLLM cannot serve the fleet's model.
    """
    release(fleet)
    _refuse_too_short(fleet.model)
    width = fleet.model.tensor_parallel
    return [
        _server(fleet.model, (first, first + width - 1), FIRST_PORT + number)
        for number, first in enumerate(range(0, group.instance.cores - width + 1, width))
    ]


def gateway(fleet: FleetSettings, group: Group) -> dict[str, str]:
    """Return the settings of the gateway before the servers of one instance."""
    running = servers(fleet, group)
    return {
        "PEAKPLAN_ENGINE": "openai",
        "PEAKPLAN_OPENAI_URL": ",".join(f"http://127.0.0.1:{server.port}/v1" for server in running),
        "PEAKPLAN_OPENAI_MODEL": fleet.model.id,
        "PEAKPLAN_OPENAI_GRAMMAR": "off",
        "PEAKPLAN_STRATEGY": "draft" if fleet.model.draft else "autoregressive",
        "PEAKPLAN_REPLICAS": str(len(running) * fleet.model.batch_size),
        "PEAKPLAN_MODEL_DIR": MODEL_DIR,
        "PEAKPLAN_MAX_PROMPT_TOKENS": str(fleet.model.max_prompt_tokens),
    }


def script(fleet: FleetSettings) -> str:
    """Return the commands with which a person sets up one instance of each group.

    Raise FleetFileError where vLLM cannot serve the fleet's model.
    """
    chosen = release(fleet)
    lines = [
        f"# Fleet {fleet.name} on vLLM {chosen.vllm}, Neuron SDK {fleet.model.sdk}. Not run on hardware.",
        f"# The model: peakplan export --model {fleet.model.folder} --format vllm --output ..., put at {MODEL_DIR}.",
        f"# {COMPILED_DIR} holds what a first start there compiled; with it no later start compiles.",
    ]
    for group in fleet.groups:
        if group.engine == "torch":
            continue  # our own kernels run there
        chips = group.instance.cores // catalogue().cores_per_chip[group.chip]
        devices = [f"--device=/dev/neuron{chip}" for chip in range(chips)]
        lines += ["", f"# {group.instance_type}, {len(servers(fleet, group))} of them on {chips} chip(s)"]
        lines += [_docker(chosen, server, devices) for server in servers(fleet, group)]
        lines += ["# the gateway on the same host"]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in gateway(fleet, group).items()]
    return "\n".join(lines)


def _docker(chosen: Release, server: Server, devices: list[str]) -> str:
    words = ["docker", "run", "--detach", "--rm", "--pull", "never", "--network", "host", *devices]
    words += ["--volume", f"{MODEL_DIR}:{MODEL_DIR}:ro", "--volume", f"{COMPILED_DIR}:{COMPILED_DIR}"]
    for name, value in server.environment.items():
        words += ["--env", f"{name}={value}"]
    return shlex.join([*words, chosen.image, *server.arguments])


def _server(model: Model, cores: tuple[int, int], port: int) -> Server:
    # What the plugin does not derive of NxDI's settings from the other arguments.
    beside = {"async_mode": model.async_mode, "enable_bucketing": True, "save_sharded_checkpoint": True}
    environment = {
        "VLLM_NEURON_FRAMEWORK": "neuronx-distributed-inference",
        "NEURON_RT_VISIBLE_CORES": str(cores[0]) if cores[0] == cores[1] else f"{cores[0]}-{cores[1]}",
        "NEURON_COMPILED_ARTIFACTS": COMPILED_DIR,
    }
    arguments = {
        "--served-model-name": model.id,
        "--host": "127.0.0.1",
        "--port": str(port),
        "--dtype": "bfloat16",  # "auto" would be the export's, which keeps its base's: float16
        "--tensor-parallel-size": str(model.tensor_parallel),
        "--max-model-len": str(model.sequence_length),
        "--max-num-seqs": str(model.batch_size),
        "--block-size": str(_BLOCK_SIZE),
        "--num-gpu-blocks-override": str(model.batch_size),
        "--additional-config": json.dumps({"override_neuron_config": beside}),
    }
    if model.draft is not None:
        speculation = {
            "model": model.draft.folder,
            "method": model.draft.method,
            "num_speculative_tokens": model.draft.tokens,
            "max_model_len": model.sequence_length,
        }
        arguments["--speculative-config"] = json.dumps(speculation)
    words = [word for pair in arguments.items() for word in pair]
    return Server(cores, port, environment, ["vllm", "serve", MODEL_DIR, "--no-enable-prefix-caching", *words])


def _refuse_too_short(model: Model) -> None:
    drafted = model.draft.tokens + 1 if model.draft else 0
    needed = model.max_prompt_tokens + model.max_plan_tokens + drafted
    if needed > model.sequence_length:
        raise FleetFileError(
            f"model.sequence_length: {model.sequence_length} positions are too few for {model.max_prompt_tokens} of "
            f"prompt, {model.max_plan_tokens} of plan and {drafted} drafted; {needed} are needed"
        )
