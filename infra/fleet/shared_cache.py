"""The cache of plans that a cell's hosts share: ElastiCache for Valkey, what hosts may do there, the room it needs."""

from pydantic import Field, field_validator

from infra.fleet.demand import Part
from infra.fleet.instances import catalogue

# Not 6379: whatever looks for a Redis server looks there first.
PORT = 6380
ENGINE, ENGINE_VERSION = "valkey", "8.0"
# The keys and commands of service/planner/redis_plan_cache.py, and nothing else.
ACCESS = "on ~peakplan:* resetchannels -@all +mget +set +ping +client|setname"
# How long hosts keep a plan: the gateway's default, PEAKPLAN_CACHE_SECONDS.
KEPT_SECONDS = 900
# An entry with its key and Valkey's own bookkeeping; tests/infra/fleet/test_sizing.py asks a real server.
BYTES_AN_ENTRY = 800
# ElastiCache keeps a quarter for replication and backups (reserved-memory-percent of Valkey's default parameter group).
USABLE_MEMORY = 0.75
# Nodes this full evict plans soon; where they are this busy on average, the primary, which does most, answers late.
FULL_PERCENT, BUSY_PERCENT = 85, 50


class SharedCache(Part):
    """The cache of every cell. Losing it costs hits alone: hosts remember plans too, and are sized without either."""

    enabled: bool = Field(default=True, description="Without it, each host remembers its own plans alone.")
    node_type: str = Field(default="cache.m7g.large", description="A node type of infra/fleet/instances.json.")
    nodes: int = Field(default=2, ge=2, le=6, description="One primary; the others stand by in other zones.")

    @field_validator("node_type")
    @classmethod
    def _known(cls, node_type: str) -> str:
        known = catalogue().cache_nodes
        if node_type not in known:
            raise ValueError(f"{node_type!r} is not known; known are {', '.join(known)} (infra/fleet/instances.json)")
        return node_type

    @property
    def usable_bytes(self) -> float:
        return USABLE_MEMORY * catalogue().cache_nodes[self.node_type] * 2**30
