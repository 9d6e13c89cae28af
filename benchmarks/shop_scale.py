"""How long `peakplan shop learn` takes over many products, and how much memory: `python -m benchmarks.shop_scale`.

The catalogue is made: kinds of the sample catalogue's sort, invented brands and lines, attributes with units, and one
bad row in ten thousand. What is measured is the command, as a process of its own.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SYLLABLES = "ka lo mi ter van dor sen qui pra bel nox ari tum fel gra zon".split()
_KINDS = {
    "Kitchen": "kettle toaster blender teapot skillet ladle whisk grater colander griddle".split(),
    "Footwear": "boot sneaker sandal loafer slipper clog moccasin oxford".split(),
    "Electronics": "headphone speaker camera monitor keyboard router charger microphone projector".split(),
    "Furniture": "sofa armchair bookcase nightstand wardrobe ottoman bench dresser".split(),
    "Garden": "trowel rake hose planter mower trellis pruner shovel".split(),
}
_COLORS = "black white red blue green grey navy beige yellow brown".split()
_MATERIALS = "steel oak leather cotton ceramic glass bamboo wool plastic".split()
_UNITS = ("{:.0f} cm", "{:.0f} in", "{:.0f} inches")


def products(count: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield made products: the same ones for the same seed."""
    rng = random.Random(seed)
    brands = ["".join(rng.choices(_SYLLABLES, k=3)).capitalize() for _ in range(max(50, count // 100))]
    for number in range(count):
        department = rng.choice(list(_KINDS))
        kind = rng.choice(_KINDS[department])
        brand = brands[int(len(brands) * rng.random() ** 2)]
        line = f"{brand[:2]}{_SYLLABLES[len(brand) % 7]}x{ord(brand[0]) % 5}".capitalize()
        color, material = rng.choice(_COLORS), rng.choice(_MATERIALS)
        yield {
            "sku": f"S{number}",
            "title": f"{brand} {line} {material.capitalize()} {kind.capitalize()} {number % 997}, {color}",
            "brand": brand,
            "category": f"{department} > {kind.capitalize()}s",
            "price": round(rng.lognormvariate(3.5, 0.8), 2),
            "color": color.capitalize(),
            "material": material,
            "height": rng.choice(_UNITS).format(rng.randint(5, 60)),
            "stars": round(rng.uniform(2, 5), 1),
            "description": f"A {color} {kind} of {material} for every day. " * 3,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--products", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="leave the shop folder here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "products.jsonl"
        with source.open("w", encoding="utf-8") as file:
            for number, row in enumerate(products(arguments.products)):
                file.write(json.dumps(row) + "\n" if number % 10_000 else "{broken\n")
        output = arguments.keep or Path(folder) / "shop"
        start = time.monotonic()
        command = [sys.executable, "-m", "shops", "learn", str(source), "--output", str(output), "--currency", "USD"]
        subprocess.run(command, check=True)
        seconds = time.monotonic() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(
            f"{arguments.products:,} products: {seconds:.0f} s ({used.ru_utime + used.ru_stime:.0f} s of one core), "
            f"at most {used.ru_maxrss / 1024:.0f} MB"
        )


if __name__ == "__main__":
    main()
