import asyncio
from dataclasses import replace

from rehearsal.triton import WARM_UP, Generate, side_by_side
from service.engines.protocol import GenerationRequest, GenerationResult
from tests.fake_models import result

REQUESTS = [GenerationRequest(prompt=str(number), grammar="") for number in range(12)]


def test_every_way_is_asked_every_question_and_compared() -> None:
    asked: dict[str, list[str]] = {"in_process": [], "pipe": [], "triton": []}

    def way(name: str, *, wrong: str = "") -> Generate:
        async def generate(request: GenerationRequest) -> GenerationResult:
            asked[name].append(request.prompt)
            return replace(result(seconds=0.0), tokens=[0] if request.prompt == wrong else [int(request.prompt)])

        return generate

    ways = {"in_process": way("in_process"), "pipe": way("pipe"), "triton": way("triton", wrong="7")}
    measured = asyncio.run(side_by_side(ways, REQUESTS))
    prompts = [request.prompt for request in REQUESTS]
    assert all(one == prompts[:WARM_UP] + prompts for one in asked.values())
    assert measured["identical_tokens"] == len(REQUESTS) - 1
    assert set(measured["milliseconds"]) == set(measured["around_generation_ms"]) == set(ways)
