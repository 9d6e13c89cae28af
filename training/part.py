"""The command line of what gives a finished model folder one more part."""

import argparse
import os
from pathlib import Path

from service.settings import Settings
from training.settings import TrainingSettings


def part_parser(description: str | None, part: str) -> argparse.ArgumentParser:
    """The arguments that all such commands have; `part` is what the folder gets."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the training data")
    parser.add_argument("--work", type=Path, required=True, help="an empty folder for what the model writes")
    parser.add_argument("--model", type=Path, required=True, help=f"model folder that gets the {part}")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="one core each")
    return parser


def part_settings(arguments: argparse.Namespace) -> TrainingSettings:
    """What they say."""
    return TrainingSettings(
        data=arguments.data,
        cache=Settings().cache_dir,
        work=arguments.work,
        output=arguments.model,
        processes=arguments.processes,
    )
