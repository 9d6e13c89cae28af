"""What the replicas' prefix caches save is counted in tokens, as vLLM counts it."""

from service.telemetry.metrics import Metrics, Outcome, Reading


def test_tokens_that_were_asked_for_and_found_are_told() -> None:
    metrics = Metrics(Reading, 300)
    for prompt, cached in ((11, 0), (24, 11)):
        metrics.planned(
            Outcome(source="model", milliseconds=9, degraded=False, prompt_tokens=prompt, cached_tokens=cached)
        )
    metrics.planned(Outcome(source="fallback", milliseconds=1, degraded=True))
    found = metrics.exposition().decode()
    assert "\npeakplan_prefix_cache_queries_total 35.0\n" in found
    assert "\npeakplan_prefix_cache_hits_total 11.0\n" in found
