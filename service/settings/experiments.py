"""The settings of an experiment: who gets which arm, and what an arm changes."""

import re
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MOST_ARMS = 8
NO_SHOP = "none"  # instead of a folder: an arm of a service with a shop folder that has none
ROUTED = frozenset({"routing-off", "routing-overload", "routing-always"})  # arms that choose who plans


class ExperimentSettings(BaseModel):
    """An experiment over plans (docs/value.md)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(default="", description="the experiment's name, which is also its salt; empty: there is none")
    arms: str = Field(
        default="",
        description="arms and their shares: control=50,rules=50. rules, routing-off, routing-overload and "
        "routing-always change who plans; any other name is the shop's own arm",
    )

    serves: str = Field(
        default="",
        description="the arms that this host serves, comma-separated, where its model, release or shop folder makes "
        "them what they are; empty: all",
    )

    shops: str = Field(
        default="",
        description="arms that are read in a shop folder of their own: newer=shops/newer,without=none, where none is "
        "no folder; other arms have that of PEAKPLAN_SHOP_DIR",
    )

    @field_validator("arms")
    @classmethod
    def _arms_can_be_read(cls, arms: str) -> str:
        found = _shares(arms)
        if len(found) > _MOST_ARMS or (arms and not sum(found.values())):
            raise ValueError(f"name at most {_MOST_ARMS} arms, and give one of them a share")
        return arms

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if bool(self.name) != bool(self.arms) or (self.name and not _NAME.fullmatch(self.name)):
            raise ValueError(
                "PEAKPLAN_EXPERIMENT_NAME (letters, digits and . _ -) and PEAKPLAN_EXPERIMENT_ARMS go together"
            )
        if unknown := self.served - set(self.shares):
            raise ValueError(
                f"PEAKPLAN_EXPERIMENT_SERVES names {', '.join(sorted(unknown))}, which PEAKPLAN_EXPERIMENT_ARMS has not"
            )
        if no_arms := _folders(self.shops).keys() - set(self.shares):
            raise ValueError(
                f"PEAKPLAN_EXPERIMENT_SHOPS names {', '.join(sorted(no_arms))}, which PEAKPLAN_EXPERIMENT_ARMS has not"
            )
        return self

    @property
    def shop_dirs(self) -> dict[str, Path | None]:
        """The shop folder of each arm of this host that has one of its own; None for an arm that is to have none."""
        folders = _folders(self.shops)
        return {arm: folder for arm, folder in folders.items() if not self.served or arm in self.served}

    @property
    def served(self) -> frozenset[str]:
        """The arms that this host serves; none is all of them."""
        return frozenset(filter(None, map(str.strip, self.serves.split(","))))

    @property
    def routes_by_worth(self) -> bool:
        """Whether this host serves an arm for which replicas have to take first what is worth most."""
        return not (ROUTED - {"routing-off"}).isdisjoint(self.served or self.shares)

    @property
    def shares(self) -> dict[str, int]:
        """Shares by arm, in order."""
        return _shares(self.arms)


def _shares(arms: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in filter(None, map(str.strip, arms.split(","))):
        name, _, share = item.partition("=")
        if not _NAME.fullmatch(name) or not re.fullmatch(r"[0-9]{1,6}", share) or name in found:
            raise ValueError(f"{item!r} must be name=share, the share a whole number, and no name twice")
        found[name] = int(share)
    return found


def _folders(shops: str) -> dict[str, Path | None]:
    found: dict[str, Path | None] = {}
    for item in filter(None, map(str.strip, shops.split(","))):
        name, _, folder = item.partition("=")
        if not folder or name in found:
            raise ValueError(f"PEAKPLAN_EXPERIMENT_SHOPS: {item!r} must be arm=folder or arm=none, and no arm twice")
        found[name] = None if folder == NO_SHOP else Path(folder)
    return found
