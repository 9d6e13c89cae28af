"""The shared cache: its room is real, it is refused where it has too little, and it can be left out."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from redis.asyncio import Redis

from infra.fleet.alarms import cell_alarms
from infra.fleet.cost import Prices, bill
from infra.fleet.settings import FLEETS, FleetSettings
from infra.fleet.shared_cache import BYTES_AN_ENTRY, KEPT_SECONDS, SharedCache
from service.engines.protocol import QuestionMeaning
from service.planner.caching import CachedPlanText
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.redis_plan_cache import _PREFIX, RedisPlanCache
from service.planner.vocabulary import shipped_vocabulary
from service.settings.groups import CacheSettings
from tests.infra.fleet.fleets import dev_fleet
from tests.redis_server import needs_redis, redis_server

# Longer than what the model writes for almost any question.
TEXT = " find Type " + "quiet blender for smoothies and soups " * 6 + "Not ninja Price 0 100 Any"


@needs_redis
@pytest.mark.anyio
async def test_an_entry_takes_no_more_room_than_the_rule_reckons_with(tmp_path: Path) -> None:
    key = PlanTask(Question.parse("quiet blender", []), shipped_vocabulary()).key("qp-smollm2-135m@" + "0" * 64)
    with redis_server(tmp_path) as server:
        memory = RedisPlanCache(server.url, timeout=0.5, seconds=60, secret="a key")
        meaning = QuestionMeaning("0" * 16, (0.5,) * 128, 1.0).packed()
        encoded = memory._encode(key, CachedPlanText(TEXT, "qp-smollm2-135m", "medusa", meaning))
        async with Redis.from_url(server.url) as client:
            await client.set(_PREFIX + key, encoded, px=60_000)
            used = await client.memory_usage(_PREFIX + key)
        await memory.close()
    assert used is not None
    assert 0 < used <= BYTES_AN_ENTRY


def test_plans_are_kept_as_long_as_the_gateway_keeps_them() -> None:
    assert CacheSettings().seconds == KEPT_SECONDS


def test_a_cache_with_too_little_room_is_refused_with_the_number() -> None:
    prime_day = FleetSettings.from_yaml(FLEETS / "prime-day.yaml").model_dump(exclude_unset=True)
    with pytest.raises(ValidationError, match=r"cache\.t4g\.small has 1\.0 GiB for plans, .* may bring 1\.9"):
        FleetSettings.model_validate(prime_day | {"shared_cache": {"node_type": "cache.t4g.small"}})
    off = FleetSettings.model_validate(prime_day | {"shared_cache": {"node_type": "cache.t4g.small", "enabled": False}})
    assert not off.shared_cache.enabled


@pytest.mark.parametrize(
    ("cache", "why"), [({"nodes": 4}, "4 nodes over 3 zones"), ({"node_type": "cache.m1.small"}, "is not known")]
)
def test_what_elasticache_could_not_give_is_refused(cache: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        dev_fleet({"shared_cache": cache})


def test_one_line_leaves_it_out_with_its_alarms_and_its_price() -> None:
    with_it, without = dev_fleet(), dev_fleet({"shared_cache": {"enabled": False}})
    keys = [{alarm.key for alarm in cell_alarms(each)} for each in (with_it, without)]
    assert keys[0] - keys[1] == {"shared-cache-down", "shared-cache-full"}
    prices = Prices.from_json()
    nodes = with_it.shared_cache.nodes * with_it.cells * prices.cache_node_hour[with_it.shared_cache.node_type]
    watched = bill(with_it, prices, "day", 1.0).hourly - bill(without, prices, "day", 1.0).hourly
    assert nodes < watched < nodes + 0.01
    assert SharedCache().enabled
