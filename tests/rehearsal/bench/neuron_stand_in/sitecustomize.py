"""Makes any Python that finds this folder one with a Neuron SDK and device of the tests' own.

It has the driver's rule: a NeuronCore belongs to the process that used it first until that process ends, and to a
second one `nrt_init` says "NeuronCore(s) not available" (AWS Neuron documentation, nrt-troubleshoot). It may keep the
core for some time after that (aws-neuron-sdk#1338). Nothing is loaded before the service imports NxDI's driver.
"""

import fcntl
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

NXDI_DRIVER = "service.engines.neuron.nxdi"
REFUSES = "STAND_IN_REFUSES"  # what its compiler crashes on: the graphs whose arguments say this
CORES = "STAND_IN_CORES"  # a folder with a file for each NeuronCore
KEEPS = "STAND_IN_KEEPS"  # the seconds for which a core stays taken after its process
_held: list[Any] = []  # open files, and their locks with them, until the process ends


def claim() -> None:
    """Take the cores that this process may see. Raises RuntimeError where another process has one of them."""
    if _held:
        return
    first, _, last = os.environ.get("NEURON_RT_VISIBLE_CORES", "0-1").partition("-")
    for core in range(int(first), int(last or first) + 1):
        file = (Path(os.environ[CORES]) / str(core)).open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"nrt_init failed: NeuronCore(s) not available - Requested: {core}") from None
        _held.append(file)
        if seconds := os.environ.get(KEEPS):
            command = ["bash", "-c", f"tail --pid={os.getpid()} -f /dev/null; sleep {seconds}"]
            subprocess.Popen(
                command,
                pass_fds=[file.fileno()],
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )


def install(module: ModuleType) -> None:
    """Give the driver for NxDI a compiler and a device that need neither."""

    def fake() -> Any:
        from tests.engines.neuron.fake_compiled import FakeDriver  # imports what is being imported here

        return FakeDriver()

    def load(_self: object, compiled: Path) -> object:
        claim()
        return fake().load(compiled)

    def compile_(_self: object, checkpoint: Path, output: Path, arguments: Any) -> None:
        if arguments.get(os.environ.get(REFUSES, "")):
            raise RuntimeError("neuronx-cc: [NCC_ITEN404] internal compiler error")  # aws-neuron-sdk#1304
        fake().compile(checkpoint, output, arguments)

    module.Nxdi.compile = compile_
    module.Nxdi.load = load


class _AfterImport:
    @staticmethod
    def find_spec(name: str, _path: object, _target: object = None) -> object:
        if name != NXDI_DRIVER:
            return None
        sys.meta_path.remove(_AfterImport)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            install(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _AfterImport)
