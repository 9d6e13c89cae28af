"""Tests of what is read of a Lighthouse report."""

from typing import Any

import pytest

from benchmarks.lighthouse import objections, scores


def report(accessibility: float | None) -> dict[str, Any]:
    def audit(name: str, score: float | None, mode: str) -> dict[str, Any]:
        return {"id": name, "title": name.title(), "score": score, "scoreDisplayMode": mode}

    audits = {
        "contrast": audit("contrast", 0, "binary"),
        "labels": audit("labels", 1, "binary"),
        "video": audit("video", None, "notApplicable"),
        "hint": audit("hint", 0, "binary"),
    }
    weights = {"contrast": 7, "labels": 3, "video": 1, "hint": 0}
    return {
        "requestedUrl": "http://127.0.0.1/",
        "audits": audits,
        "categories": {
            "accessibility": {
                "score": accessibility,
                "auditRefs": [{"id": name, "weight": weight} for name, weight in weights.items()],
            },
            "best-practices": {"score": 1, "auditRefs": []},
        },
    }


def test_scores_are_of_a_hundred() -> None:
    assert scores(report(0.87)) == {"accessibility": 87, "best-practices": 100}


def test_a_page_that_could_not_be_judged_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"could not judge http://127\.0\.0\.1/"):
        scores(report(None))


def test_objections_are_what_counts_and_applies() -> None:
    assert objections(report(0.87)) == ["contrast: Contrast"]
