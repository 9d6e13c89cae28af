"""Finds a Triton server on this machine, and builds the command that starts it on our model repository."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import service

_OWN_VENV = Path(service.__file__).parents[1] / ".venv-triton"  # `peakplan tools install triton`
_NVIDIA_CONTAINER = Path("/opt/tritonserver")
_IN_WHEEL = "lib/python3.*/*-packages/pytriton/tritonserver"


class NoTritonError(RuntimeError):
    """Raised when there is no Triton server here; the message says how to get one."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A Triton server with its python backend, and the Python for its stubs."""

    server: Path
    backends: Path
    python: Path  # folder of the stubs' python3
    libraries: Path | None = None  # libraries that the server links to, where they are not the system's
    stub: Path | None = None  # a python backend's stub where the backend brings none

    @classmethod
    def find(cls, home: Path | None = None) -> "Installation":
        """Look in `home`, else in .venv-triton, this interpreter's packages, and NVIDIA's container.

        `home` is a virtual environment that holds nvidia-pytriton, or a folder like /opt/tritonserver. Raises
        NoTritonError.
        """
        places = [home] if home is not None else [_OWN_VENV, Path(sys.prefix), _NVIDIA_CONTAINER]
        for place in places:
            for found in (*cls._of_wheel(place), *cls._of_container(place)):
                return found
        raise NoTritonError(
            f"no tritonserver in {' or '.join(map(str, places))}. `peakplan tools install triton` puts one into "
            f"{_OWN_VENV.name}; "
            "PEAKPLAN_TRITON_HOME names another place"
        )

    @classmethod
    def _of_wheel(cls, place: Path) -> Iterator["Installation"]:
        """Yield installations of nvidia-pytriton in an environment; it brings a stub for each version of Python."""
        for folder in sorted(place.glob(_IN_WHEEL)):
            packages = folder.parents[1]
            version = packages.parent.name.removeprefix("python")
            stub = folder / "python_backend_stubs" / version / "triton_python_backend_stub"
            if (folder / "bin" / "tritonserver").is_file() and stub.is_file():
                yield cls(
                    server=folder / "bin" / "tritonserver",
                    backends=folder / "backends",
                    python=place / "bin",
                    libraries=packages / "nvidia_pytriton.libs",
                    stub=stub,
                )

    @classmethod
    def _of_container(cls, place: Path) -> Iterator["Installation"]:
        """Yield the installation in NVIDIA's own layout, whose stub is for that container's Python."""
        if (place / "bin" / "tritonserver").is_file() and (place / "backends" / "python").is_dir():
            yield cls(place / "bin" / "tritonserver", place / "backends", Path(sys.executable).parent)

    def link_backends(self, folder: Path) -> Path:
        """Return the folder of backends for the server: links in `folder`, where the stub lies apart from them."""
        if self.stub is None:
            return self.backends
        linked = folder / "python"
        shutil.rmtree(linked, ignore_errors=True)
        linked.mkdir(parents=True)
        for path in (*(self.backends / "python").iterdir(), self.stub):
            (linked / path.name).symlink_to(path)
        return folder

    def command(
        self, repository: Path, backends: Path, address: str, *, replicas: int, stop_seconds: int, metrics_port: int = 0
    ) -> list[str]:
        """Return the command of a server that starts empty: the gateway loads each model. `address` is host:port."""
        host, port = address.strip().replace("[", "").replace("]", "").rsplit(":", 1)
        metrics = [f"--metrics-address={host}", f"--metrics-port={metrics_port}"] if metrics_port else []
        return [
            str(self.server),
            f"--model-repository={repository.resolve()}",
            f"--backend-directory={backends.resolve()}",
            "--model-control-mode=explicit",
            "--disable-auto-complete-config",  # or every load starts one more stub to ask what config.pbtxt says
            f"--model-load-thread-count={replicas}",
            f"--grpc-address={host}",
            f"--grpc-port={port}",
            "--allow-http=false",
            f"--allow-metrics={'true' if metrics else 'false'}",
            *metrics,
            f"--exit-timeout-secs={stop_seconds}",
            "--log-info=false",
        ]

    def environment(self, base: Mapping[str, str], threads: int) -> dict[str, str]:
        """Return the server's environment, inherited by stubs: their Python first in PATH, kernels on `threads`."""
        libraries = [str(self.libraries)] if self.libraries is not None else []
        return {
            **base,
            "PATH": os.pathsep.join([str(self.python), base.get("PATH", os.defpath)]),
            "LD_LIBRARY_PATH": os.pathsep.join([*libraries, *filter(None, [base.get("LD_LIBRARY_PATH")])]),
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "TOKENIZERS_PARALLELISM": "false",
        }
