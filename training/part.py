"""The command line shared by the programs that add one part to a finished model folder."""

import argparse
import os
from pathlib import Path

from service.settings import Settings
from training.settings import TrainingSettings


def part_parser(description: str | None, part: str) -> argparse.ArgumentParser:
    """Return the arguments that all such commands have; `part` names what is added to the folder."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the training data")
    parser.add_argument("--work", type=Path, required=True, help="an empty folder for what the model writes")
    parser.add_argument("--model", type=Path, required=True, help=f"model folder that gets the {part}")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="one core each")
    return parser


def part_settings(arguments: argparse.Namespace) -> TrainingSettings:
    """Return the settings for these arguments."""
    return TrainingSettings(
        data=arguments.data,
        cache=Settings().cache_dir,
        work=arguments.work,
        output=arguments.model,
        processes=arguments.processes,
    )
