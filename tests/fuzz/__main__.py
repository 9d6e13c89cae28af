"""`make fuzz`: hunt for FUZZ_SECONDS; a find is appended to the corpus, which the suite replays for ever."""

import argparse
import json
import sys
from collections import Counter

from tests.fuzz.search import FoundError, hunts
from tests.fuzz.test_fuzz import CORPUS

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--seconds", type=float, default=3600)
tried: Counter[str] = Counter()
try:
    for name, count in hunts(parser.parse_args().seconds):
        tried[name] += count
except FoundError as found:
    with CORPUS.open("a", encoding="utf-8") as corpus:
        corpus.write(json.dumps(found.conversation) + "\n")
    sys.exit(f"{found}\nIt is in {CORPUS.name} now: mend what it found, and commit both.")
print(", ".join(f"{name} {count}" for name, count in tried.items()), "conversations tried: nothing found")
