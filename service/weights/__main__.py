"""`python -m service.weights export|import|seal`: export our model to other engines, import others', seal a folder."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from service.planner.reader.reading import FILES as READER_FILES
from service.planner.vocabulary import FILE_NAME, Vocabulary, VocabularyError, vocabulary_file
from service.settings import Settings
from service.settings.choices import SHIPPED_MODEL
from service.weights.base_weights import BaseWeightsError
from service.weights.exporting import export_model
from service.weights.head_layouts import LAYOUTS, PEAKPLAN, LayoutError
from service.weights.importing import import_model
from service.weights.model_card import BASE_FOLDER
from service.weights.model_folder import ModelFolderError
from service.weights.tokenizer_file import read_tokenizer

FORMATS = [name for name in LAYOUTS if name != PEAKPLAN.name]


class _Done(NamedTuple):
    """What a command did: for programs, and for people."""

    told: dict[str, Any]
    lines: list[str]


def _path(word: str) -> Path:
    """Return a path with ~ expanded, because no shell expands it in a make variable."""
    return Path(word).expanduser()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m service.weights", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="a model folder as a Hugging Face checkpoint, heads in another layout")
    export.add_argument("--format", choices=FORMATS, required=True)
    export.add_argument("--output", type=_path, required=True, help="a new folder")
    export.add_argument("--model", type=_path, help="a model folder; PEAKPLAN_MODEL_DIR otherwise")
    taken = commands.add_parser("import", help="a checkpoint and its heads as a model folder")
    taken.add_argument("--checkpoint", type=_path, required=True, help="a folder in Hugging Face's layout")
    taken.add_argument("--heads", type=_path, help="a file or folder of Medusa heads, in any layout")
    taken.add_argument("--tree", type=_path, help="a JSON list of choices")
    taken.add_argument("--eagle", type=_path, help="a folder of an EAGLE-3 head, for exports to vLLM and NxDI")
    taken.add_argument(
        "--vocabulary",
        type=_path,
        default=SHIPPED_MODEL,
        help="the vocabulary.json that it learnt, or its folder",
    )
    taken.add_argument("--output", type=_path, required=True, help="a new folder")
    sealed = commands.add_parser("seal", help="write what the files of a model folder, and its first answer, must be")
    sealed.add_argument("model", type=_path, help="a model folder")
    taken.add_argument("--id", default="", help="the model's name in answers; the checkpoint's folder otherwise")
    for command in commands.choices.values():
        command.add_argument("--json", action="store_true", help="print what was done as one line of JSON")
    return parser


def _export(arguments: argparse.Namespace) -> _Done:
    settings = Settings()
    model = arguments.model or settings.model_dir
    exported = export_model(model, settings.cache_dir, LAYOUTS[arguments.format], arguments.output)
    heads = [str(path.relative_to(exported.folder)) for path in exported.heads]
    said = ", ".join(heads) or "none: the model has none"
    return _Done(
        {"folder": str(exported.folder), "format": arguments.format, "heads": heads},
        [f"wrote {exported.folder}: a Hugging Face checkpoint; heads for {arguments.format}: {said}"],
    )


def _import(arguments: argparse.Namespace) -> _Done:
    vocabulary = Vocabulary.load(arguments.vocabulary)
    made = import_model(
        arguments.checkpoint,
        arguments.output,
        arguments.heads,
        name=arguments.id,
        tree=arguments.tree,
        eagle=arguments.eagle,
        beside={
            FILE_NAME: vocabulary_file(arguments.vocabulary),
            **{name: SHIPPED_MODEL / name for name in READER_FILES},  # of any model: a vocabulary says what it may use
        },
    )
    tokenizer = read_tokenizer(made.folder / BASE_FOLDER / "tokenizer.json")
    try:
        vocabulary.check_tokens(tokenizer, made.folder / FILE_NAME)
    except VocabularyError as error:
        made.notes.append(f"every word of the vocabulary that is several tokens makes plans slower: {error}")
    heads = "" if made.heads is None else f" with {made.heads.heads.count} heads of {made.heads.path}"
    count = 0 if made.heads is None else made.heads.heads.count
    return _Done(
        {"folder": str(made.folder), "heads": count, "notes": list(made.notes)},
        [
            f"wrote {made.folder}{heads}",
            *(f"note: {note}" for note in made.notes),
            f"serve it: PEAKPLAN_MODEL_DIR={made.folder} make serve",
        ],
    )


def _seal(arguments: argparse.Namespace) -> _Done:
    from service.engines.torch_engine import seal_folder

    seal = seal_folder(arguments.model, Settings().cache_dir)
    unchecked = "" if seal.answer else "; without our kernels here, no known answer"
    return _Done(
        {"folder": str(arguments.model), "files": len(seal.files), "answer": bool(seal.answer)},
        [f"sealed {len(seal.files)} files of {arguments.model}{unchecked}"],
    )


def main(words: list[str] | None = None) -> int:
    """Run the command line; return 0, or 2 with the reason on stderr when something cannot be used."""
    arguments = _parser().parse_args(words)
    try:
        done = {"export": _export, "import": _import, "seal": _seal}[arguments.command](arguments)
    except (LayoutError, ModelFolderError, VocabularyError, BaseWeightsError, ValidationError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(done.told, ensure_ascii=False) if arguments.json else "\n".join(done.lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
