"""`python -m service.engines.neuron compile|check`: compile artifacts for inf2 and trn1, or check them."""

import argparse
import sys
from pathlib import Path

from pydantic import ValidationError

from service.engines.neuron.compilation import check_memory, compile_model
from service.engines.neuron.configuration import TENSOR_PARALLEL, CompileSettings, ConfigurationError
from service.engines.neuron.manifest import Manifest, ManifestError, check_manifest
from service.engines.neuron.nxdi import NXDI
from service.engines.neuron.packages import NeuronUnavailableError, installed_versions
from service.settings import Settings
from service.weights.base_weights import BaseWeightsError
from service.weights.head_layouts import LayoutError
from service.weights.model_folder import ModelFolderError, read_card

_REFUSALS = (
    BaseWeightsError,
    ConfigurationError,
    LayoutError,
    ManifestError,
    ModelFolderError,
    NeuronUnavailableError,
    ValidationError,
    OSError,
)


def _parser(settings: Settings) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m service.engines.neuron", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    described = {name: field.description for name, field in CompileSettings.model_fields.items()}

    compiling = commands.add_parser("compile", help="compile a model folder; minutes, on a machine with the SDK")
    compiling.add_argument("--model", type=Path, default=settings.model_dir, help="a model folder")
    compiling.add_argument("--output", type=Path, required=True, help="a new folder")
    compiling.add_argument("--chip", choices=list(TENSOR_PARALLEL), default="inf2", help=described["chip"])
    compiling.add_argument("--tensor-parallel", type=int, default=1, help=described["tensor_parallel"])
    compiling.add_argument(
        "--max-prompt-tokens", type=int, default=settings.max_prompt_tokens, help=described["max_prompt_tokens"]
    )
    compiling.add_argument("--max-new-tokens", type=int, default=0, help="longest answer; 0: the model's own limit")
    compiling.add_argument("--sequence-length", type=int, default=0, help=described["sequence_length"])
    compiling.add_argument(
        "--context-buckets", type=_lengths, default=(), help=f"{described['context_buckets']}; such as 32,384"
    )
    compiling.add_argument("--batch-size", type=int, default=1, help=described["batch_size"])
    compiling.add_argument("--speculation-length", type=int, default=0, help=described["speculation_length"])
    compiling.add_argument("--graph", choices=["tree", "chain"], default="tree", help=described["graph"])
    compiling.add_argument("--weight-layout", action="store_true", help=described["weight_layout"])
    compiling.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    compiling.add_argument(
        "--int8", action="store_const", dest="weights", const="int8", default="as computed", help=described["weights"]
    )

    checking = commands.add_parser("check", help="whether compiled artifacts belong to this model and this SDK")
    checking.add_argument("--model", type=Path, default=settings.model_dir, help="a model folder")
    checking.add_argument("--compiled", type=Path, required=True)
    checking.add_argument("--max-prompt-tokens", type=int, default=0, help="the longest prompt to be served; 0: any")
    for command in commands.choices.values():
        command.add_argument("--json", action="store_true", help="print the manifest as one line of JSON")
    return parser


def _lengths(words: str) -> tuple[int, ...]:
    return tuple(int(length) for length in words.split(",") if length)


def _compile(arguments: argparse.Namespace, settings: Settings) -> Manifest:
    packages = installed_versions()
    given = {name: value for name, value in vars(arguments).items() if name in CompileSettings.model_fields}
    given["max_new_tokens"] = arguments.max_new_tokens or read_card(arguments.model).max_tokens
    wanted = CompileSettings(**given)
    check_memory(arguments.model, wanted.chip, wanted.tensor_parallel, int8=wanted.weights == "int8")
    return compile_model(arguments.model, settings.cache_dir, arguments.output, wanted, packages, NXDI)


def _check(arguments: argparse.Namespace) -> Manifest:
    least = {
        "max_context_length": arguments.max_prompt_tokens,
        "max_new_tokens": read_card(arguments.model).max_tokens,
    }
    return check_manifest(arguments.compiled, arguments.model, installed_versions(), least)


def main(words: list[str] | None = None) -> int:
    """Run the command line; return 0, or 2 with the reason on stderr."""
    settings = Settings()
    arguments = _parser(settings).parse_args(words)
    try:
        manifest = _compile(arguments, settings) if arguments.command == "compile" else _check(arguments)
    except _REFUSALS as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.json:
        print(manifest.model_dump_json())
        return 0
    print(f"{manifest.model_id} for {manifest.chip}, Neuron SDK {manifest.sdk}: {len(manifest.files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
