"""`python -m service.engines.triton`: write the configured model repository, become the Triton server.

The gateway beside it is `PEAKPLAN_ENGINE=triton python -m service`, with the same settings. See
service/engines/triton/README.md.
"""

import argparse
import os
import sys

from pydantic import ValidationError

from service.engines.triton.installation import Installation, NoTritonError
from service.engines.triton.wire import Replica, write_repository
from service.environment import problems_of
from service.settings import Settings
from service.telemetry.logs import cannot_start, configure_logging


def main(words: list[str]) -> int:
    """Run; return 1, with one line on standard error, when there is nothing to start or nowhere to write."""
    parser = argparse.ArgumentParser(
        prog="python -m service.engines.triton", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--write-only", action="store_true", help="write the repository and print the server's command")
    options = parser.parse_args(words)
    configure_logging("info")
    try:
        settings = Settings()
        installation = Installation.find(settings.triton.home)
        command = prepare(settings, installation)
    except ValidationError as error:
        return _fail(problems_of(error, Settings))
    except (NoTritonError, OSError, ValueError) as error:
        return _fail(str(error))
    if not options.write_only:
        os.execve(command[0], command, installation.environment(os.environ))
    print(" ".join(command))
    return 0


def prepare(settings: Settings, installation: Installation) -> list[str]:
    """Write the files that the server reads and return its command. Raises OSError, ValueError."""
    folder = settings.triton.folder or settings.cache_dir / "triton"
    replica = Replica("service.engines.factory:source_from_json", {"config": settings.engine_config.as_json()}, {})
    cores = settings.neuron.tensor_parallel
    write_repository(folder / "models", replica, replicas=settings.replica_count, cores=cores)
    return installation.command(
        folder / "models",
        installation.link_backends(folder / "backends"),
        settings.triton.url,
        replicas=settings.replica_count,
        stop_seconds=settings.shutdown_seconds,
    )


def _fail(reason: str) -> int:
    cannot_start("triton", reason)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
