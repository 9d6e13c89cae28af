"""The shop folders of the settings: the service's own, and those of an experiment's arms."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from service.engines.protocol import EngineUnavailableError
from service.planner.fallback.reading import readers
from service.planner.shop.folder import ShopFolder, ShopFolderError
from service.planner.shop.lexicon import Lexicon
from service.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shops:
    """The shop in which words are read, and those of arms that have one of their own; None for none."""

    usual: Lexicon | None
    of_arms: Mapping[str, Lexicon | None]

    @classmethod
    def load(cls, settings: Settings) -> "Shops":
        """Read the folders, each once. Raises EngineUnavailableError, which names the setting and the file."""
        read: dict[Path, Lexicon] = {}

        def folder(path: Path | None, setting: str) -> Lexicon | None:
            if path is None:
                return None
            if (known := path.resolve()) not in read:
                read[known] = _read(path, setting)
            return read[known]

        usual = folder(settings.shop_dir, "PEAKPLAN_SHOP_DIR")
        arms = settings.experiment.shop_dirs.items()
        return cls(usual, {arm: folder(path, f"PEAKPLAN_EXPERIMENT_SHOPS, arm {arm}") for arm, path in arms})

    def use(self) -> None:
        """Read words so from now on."""
        readers.use_shop(self.usual, self.of_arms.values())


def _read(path: Path, setting: str) -> Lexicon:
    try:
        shop = ShopFolder.load(path)
    except ShopFolderError as error:
        raise EngineUnavailableError(f"{setting}: {error}") from error
    logger.info("shop", extra={"folder": str(path), "version": shop.digest, "megabytes": round(shop.size / 1e6, 1)})
    return shop.lexicon
