"""The tree that Medusa's authors publish for Vicuna 7B, `mc_sim_7b_63` (FasterDecoding/Medusa, Apache-2.0).

63 nodes of 4 heads, depth 4: 64 rows with the root. NxDI's examples and AWS's samples compile it.
"""

import json
from pathlib import Path

CHOICES: list[list[int]] = json.loads(Path(__file__).with_name("mc_sim_7b_63.json").read_text(encoding="utf-8"))
HEADS, ROWS = 4, 64
