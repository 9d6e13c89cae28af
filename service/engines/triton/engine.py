"""A replica that Triton hosts, as an `Engine`: one model of one instance, one request in flight.

Triton does not restart a dead stub, yet reports it as ready (triton-inference-server/server#8604). So readiness here
means an inference that succeeded, and a replica that died, hangs or is quarantined is unloaded and loaded again.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from typing import ClassVar

from service.engines.protocol import (
    GRACE_SECONDS,
    EngineError,
    EngineUnavailableError,
    GenerationRequest,
    GenerationResult,
    RequestRefusedError,
)
from service.engines.triton.client import ModelFailedError, TritonModel
from service.engines.triton.wire import ProcessName, ReplicaInfo, model_name
from service.settings.choices import Strategy

logger = logging.getLogger(__name__)

START_SECONDS = 600.0  # compiled artifacts of a big model take minutes to load
_INFO_SECONDS = 2.0  # a dead stub's calls fail after one
_NOTICE_SECONDS = 2.0  # waiting for the server longer than this is logged
_PROOF_SECONDS = 30.0  # a model's first inference may be slow
_UNLOAD_SECONDS = 2.0
_PROOF = "red shoes"
_PROOF_GRAMMAR = r"start: /( [a-z]{1,6}){1,2}/"


class StubWatch:
    """Calls `on_end` when the process ends; can kill it."""

    def __init__(self, process: ProcessName | None, on_end: Callable[[], None]) -> None:
        self._descriptor: int | None = None
        self._ended = asyncio.Event()
        self._on_end = on_end
        if process is None or ProcessName.of(process.pid) != process:
            return
        with contextlib.suppress(OSError):  # it has just ended, or this kernel has no process descriptors
            self._descriptor = os.pidfd_open(process.pid)
            asyncio.get_running_loop().add_reader(self._descriptor, self._end)
        if ProcessName.of(process.pid) != process:  # the process id was reused in between
            self.close()

    @property
    def sees(self) -> bool:
        """Whether the process is visible from here and has not been ended."""
        return self._descriptor is not None

    async def wait(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)
        return self._ended.is_set()

    def kill(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # it has ended, or is not ours to kill
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def close(self) -> None:
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _end(self) -> None:
        self.close()
        self._ended.set()
        self._on_end()


class _Life:
    """A replica from the inference that proved it healthy until it is given up."""

    def __init__(self, info: ReplicaInfo) -> None:
        self.info = info
        self.stuck = False
        self.ended = asyncio.Event()
        self.stub = StubWatch(info.process, self.ended.set)

    @property
    def lasts(self) -> bool:
        return not self.ended.is_set()


class TritonEngine:
    """The replica on chip `number` of the Triton server at `address`."""

    kernel = ""
    # The engines of this process that are not closed, by replica. In a reload the new one unloads what the old one
    # has; the old one must not treat that as a failure and load it back.
    _engines: ClassVar[defaultdict[tuple[str, str], list["TritonEngine"]]] = defaultdict(list)

    def __init__(
        self,
        address: str,
        number: int,
        *,
        version: str = "",
        strategy: Strategy = "medusa",
        start_seconds: float = START_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        """Take the required model `version` ("" for any). A cancelled replica has `grace_seconds` to become free."""
        self._address = address
        self._name = model_name(number)
        self._version = version
        self._strategy = strategy
        self._start_seconds = start_seconds
        self._grace_seconds = grace_seconds
        self._model: TritonModel | None = None
        self._life: _Life | None = None
        self._rivals = self._engines[address, self._name]

    @property
    def model_id(self) -> str:
        return self._life.info.model_id if self._life is not None else ""

    @property
    def available(self) -> bool:
        return self._life is not None and self._life.lasts

    @property
    def process(self) -> ProcessName | None:
        """The stub process that answers; None when there is none, or it is not visible from here."""
        return self._life.info.process if self._life is not None else None

    async def start(self) -> None:
        """Load the replica; on the first start, adopt it if Triton hosts it already.

        Wait for a server that is not up yet. Raises EngineUnavailableError after `start_seconds`, with Triton's reason
        for a model that does not load, or when a newer engine has this replica.
        """
        if self._model is None:
            self._model = TritonModel(self._address, self._name)
            self._rivals.append(self)
        if self._rivals[-1] is not self:
            raise EngineUnavailableError(f"a newer engine has {self._name} in Triton")
        if self._life is not None:
            self._life.ended.set()
        try:
            async with asyncio.timeout(self._start_seconds):
                info = await self._hosted(self._model)
                await self._prove(self._model)
        except RequestRefusedError as error:
            raise EngineUnavailableError(f"{self._name} in Triton refuses a trial request: {error}") from error
        except TimeoutError:
            raise EngineUnavailableError(
                f"{self._name} in Triton is not up after {self._start_seconds:.0f} s"
            ) from None
        if self._life is not None:
            self._life.stub.close()
        self._life = _Life(info)

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """See `Engine.generate`. When cancelled it waits until the replica is free; one that stays busy is lost."""
        life, model = self._life, self._model
        if life is None or model is None or not life.lasts:
            raise EngineUnavailableError(f"{self._name} in Triton is not started")
        timeout = None
        if request.deadline is not None:
            timeout = max(0.0, request.deadline - time.monotonic()) + self._grace_seconds
        call = asyncio.ensure_future(model.generate(request, timeout))
        death = asyncio.ensure_future(life.ended.wait())
        try:
            await asyncio.wait({call, death}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            call.cancel()
            await self._settle(model, life)
            raise
        finally:
            death.cancel()
        if not call.done():
            call.cancel()
            raise EngineUnavailableError(f"the process of {self._name} in Triton ended")
        try:
            return call.result()
        except (RequestRefusedError, ModelFailedError):
            raise
        except EngineUnavailableError:
            life.ended.set()
            raise

    async def failed(self) -> None:
        if self._life is not None:
            await self._life.ended.wait()

    async def close(self) -> None:
        life, model = self._life, self._model
        self._life, self._model = None, None
        if life is not None:
            life.ended.set()
            life.stub.close()
        if model is not None:
            self._rivals.remove(self)
            await model.close()

    async def _settle(self, model: TritonModel, life: _Life) -> None:
        """Wait until the replica is free: requests of one instance run in turn, so an answer means that it is."""
        try:
            await model.info(self._grace_seconds)
        except EngineError as error:
            logger.error("a cancelled replica did not come free", extra={"reason": str(error)})
            life.stuck = True
            life.ended.set()

    async def _hosted(self, model: TritonModel) -> ReplicaInfo:
        """Return the replica's own information, loading it if necessary. Raises EngineUnavailableError."""
        try:
            await model.wait_until_live(_NOTICE_SECONDS)
        except EngineUnavailableError:
            logger.warning("waiting for Triton", extra={"address": self._address})
            await model.wait_until_live(self._start_seconds)
        info = await self._answer(model) if self._life is None else None
        if info is None or (self._version and info.version != self._version):
            await self._renew(model)
            info = await model.info(self._start_seconds)
        if self._version and info.version != self._version:
            logger.warning("Triton hosts another version", extra={"hosted": info.version, "wanted": self._version})
        return info

    async def _answer(self, model: TritonModel) -> ReplicaInfo | None:
        """Return the replica's information; None when it is not loaded, or its process is dead or hangs."""
        try:
            return await model.info(_INFO_SECONDS)
        except EngineError:
            return None

    async def _renew(self, model: TritonModel) -> None:
        """Unload, wait for the old process to end (on a chip it holds the cores), and load."""
        life = self._life
        if life is not None and life.stuck:
            life.stub.kill()
        with contextlib.suppress(EngineUnavailableError):  # one that hangs and is not visible from here
            await model.unload(_UNLOAD_SECONDS)
        if life is not None and life.stub.sees and not await life.stub.wait(_UNLOAD_SECONDS):
            logger.error("the process of a replica in Triton does not end: killed", extra={"replica": self._name})
            life.stub.kill()
            await life.stub.wait(_UNLOAD_SECONDS)
        await model.load(self._start_seconds)

    async def _prove(self, model: TritonModel) -> None:
        """Run a real inference. Raises EngineError."""
        request = GenerationRequest(prompt=_PROOF, grammar=_PROOF_GRAMMAR, strategy=self._strategy)
        await model.generate(request, _PROOF_SECONDS)
