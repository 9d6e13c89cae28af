"""What judges said of the gallery's plans: rehearsal/tools/gallery_judgements.jsonl, shown in docs/gallery.md.

Three judges, who saw the contract, the questions and the plans alone and not each other's verdicts, called each plan
usable, partly usable or wrong. A verdict is of the plan that was judged: it is not shown beside another one.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JUDGEMENTS = Path(__file__).with_name("gallery_judgements.jsonl")
USABLE, PARTLY, WRONG = "usable", "partly", "wrong"


@dataclass(frozen=True)
class Judgement:
    """What each judge said of one plan, and why, where one judge or more found a fault."""

    plan: str  # its digest
    verdicts: tuple[str, ...]
    why: str

    @property
    def majority(self) -> str:
        """What most judges said; partly where no two agree."""
        said, judges = Counter(self.verdicts).most_common(1)[0]
        return said if 2 * judges > len(self.verdicts) else PARTLY


def digest(plan: Mapping[str, Any]) -> str:
    """Return what tells whether two plans are one."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:16]


def judgements(path: Path = JUDGEMENTS) -> dict[str, Judgement]:
    """Return every judgement by the digest of its plan."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["plan"]: Judgement(row["plan"], tuple(row["verdicts"]), row["why"]) for row in rows}


def summary(plans: Sequence[Mapping[str, Any]], judged: Mapping[str, Judgement]) -> str:
    """Return how many of the plans are usable, partly usable and wrong by the majority of the judges."""
    known = [judged[key] for plan in plans if (key := digest(plan)) in judged]
    counts = Counter(each.majority for each in known)
    told = f"By the majority of three judges {counts[USABLE]} of {len(known)} plans are usable as they are, "
    told += f"{counts[PARTLY]} partly, and {counts[WRONG]} wrong."
    since = len(plans) - len(known)
    return told + (f" {since} are other plans than those that were judged." if since else "")


def remark(plan: Mapping[str, Any], judged: Mapping[str, Judgement]) -> str:
    """Return what most judges found wrong with a plan; nothing of one that is usable or was not judged."""
    found = judged.get(digest(plan))
    if found is None or found.majority == USABLE:
        return ""
    return f"*Judged {'partly usable' if found.majority == PARTLY else found.majority}:* {found.why}"
