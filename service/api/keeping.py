"""What keeps plans, outcomes and events, and assigns arms: made from the settings."""

from collections.abc import Mapping

from service.api.experiment import Experiment
from service.api.outcome_log import OutcomeLog, OutcomeLogError, plans_file
from service.api.request_ids import RequestIds
from service.events.journal import Journal, JournalError
from service.events.keeper import EventKeeper
from service.events.model import ACTIONS
from service.events.sessions import Sessions
from service.events.shipping import Sink
from service.planner.shop.lexicon import Lexicon
from service.settings import Settings
from service.settings.experiments import ExperimentSettings
from service.settings.groups import OutcomeSettings
from service.telemetry.metrics import Metrics


def outcome_log(settings: Settings) -> OutcomeLog | None:
    """Return what keeps plans and outcomes. Raises OutcomeLogError."""
    outcomes = settings.outcomes
    if outcomes.dir is None:
        return None
    size = outcomes.file_megabytes * 1_000_000
    return OutcomeLog(
        outcomes.dir, keeps_text=outcomes.text, file_bytes=size, files=outcomes.files, release=settings.release
    )


def event_keeper(
    outcomes: OutcomeSettings, sessions: Sessions, request_ids: RequestIds, metrics: Metrics
) -> EventKeeper | None:
    """Return what keeps events. Raises OutcomeLogError: a folder cannot be written, or a library is missing."""
    if outcomes.dir is None:
        return None
    if wrong := [f"{name}={kept}" for name, kept in outcomes.own_actions.items() if kept not in (name, *ACTIONS)]:
        known = ", ".join(ACTIONS)
        raise OutcomeLogError(f"PEAKPLAN_OUTCOMES_ACTIONS: {', '.join(wrong)}: what is meant must be one of {known}")
    folders = [outcomes.dir, *([outcomes.spill_dir] if outcomes.spill_dir else [])]
    try:
        journal = Journal(folders, file_bytes=outcomes.file_megabytes * 1_000_000, files=outcomes.files)
    except JournalError as error:
        raise OutcomeLogError(f"PEAKPLAN_OUTCOMES_DIR or PEAKPLAN_OUTCOMES_SPILL_DIR: {error}") from error
    keeper = EventKeeper(
        journal,
        sessions,
        keeps_text=outcomes.text,
        is_served=request_ids.is_of_late,
        planned_in=request_ids.planned_in,
        count=metrics.happened,
        own_actions=outcomes.own_actions,
    )
    if outcomes.postgres is not None:
        keeper.ship(_postgres(outcomes.postgres.get_secret_value()))
    if outcomes.firehose:
        keeper.ship(_firehose(outcomes.firehose), also=[plans_file(outcomes.dir)])
    metrics.watch(
        lambda: {
            "EventsRefused": journal.refused,
            "EventsSpilled": journal.spilled,
            "EventsHeldUp": keeper.shipper.failures if keeper.shipper else 0,
        }
    )
    return keeper


def _postgres(url: str) -> Sink:
    try:  # a library that only this needs, and that takes time to import
        from service.events.postgres import PostgresSink
    except ModuleNotFoundError as error:
        raise OutcomeLogError(
            f"PEAKPLAN_OUTCOMES_POSTGRES needs the package {error.name}, which is not installed: "
            "pip install 'peakplan[postgres]', in a checkout pip install -e '.[postgres]'"
        ) from error

    return PostgresSink(url)


def _firehose(arn: str) -> Sink:
    from service.events.firehose import FirehoseSink  # likewise

    return FirehoseSink(arn)


def experiment(
    settings: ExperimentSettings, sessions: Sessions, shops: Mapping[str, Lexicon | None]
) -> Experiment | None:
    """Return what assigns shoppers to arms, with the shops of those that have one; None without an experiment."""
    return Experiment(settings.name, settings.shares, sessions, settings.served, shops) if settings.name else None
