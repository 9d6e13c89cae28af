"""The alarms of one cell in CloudWatch, rendered from the definitions in infra/fleet/alarms.py."""

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.constructs.names import CellNames, camel, expand_all, query
from infra.constructs.on_call import OnCallTopics
from infra.fleet.alarm_kinds import CompositeAlarm, MetricAlarm, Severity, runbook_url
from infra.fleet.alarms import SUPPRESSION_SECONDS, alarm_name, cell_alarms
from infra.fleet.settings import FleetSettings

_Query = cloudwatch.CfnAlarm.MetricDataQueryProperty


class CellAlarms(Construct):
    """Every alarm of one cell.

    Pages and tickets go to topics of their own; the parts of composite alarms send no notification.
    """

    def __init__(
        self, scope: Construct, id: str, *, settings: FleetSettings, names: CellNames, on_call: OnCallTopics
    ) -> None:
        super().__init__(scope, id)
        self._settings, self._names, self._on_call = settings, names, on_call
        self._made: dict[str, cloudwatch.CfnAlarm | cloudwatch.CfnCompositeAlarm] = {}
        for alarm in cell_alarms(settings):
            made = self._metric(alarm) if isinstance(alarm, MetricAlarm) else self._composite(alarm)
            self._made[alarm.key] = made

    def name(self, key: str) -> str:
        return alarm_name(self._settings.name, self._names.cell, key)

    def _metric(self, alarm: MetricAlarm) -> cloudwatch.CfnAlarm:
        metrics, expression = expand_all(alarm.readings, alarm.expression, self._settings.name, self._names)
        queries = [query(metric, alarm.period_seconds, returned=metric.id == expression) for metric in metrics]
        if not any(metric.id == expression for metric in metrics):
            queries.append(_Query(id="value", expression=expression, label=alarm.key, return_data=True))
        # A page reaches a person only through the page alarm, which a deploy may suppress.
        told = [self._on_call.ticket] if alarm.severity is Severity.TICKET else []
        return cloudwatch.CfnAlarm(
            self,
            camel(alarm.key),
            alarm_name=self.name(alarm.key),
            alarm_description=self._description(alarm),
            metrics=queries,
            comparison_operator=alarm.comparison,
            threshold=alarm.line,
            evaluation_periods=alarm.periods,
            datapoints_to_alarm=alarm.breaching,
            treat_missing_data=alarm.missing,
            alarm_actions=told,
            ok_actions=told,
        )

    def _composite(self, alarm: CompositeAlarm) -> cloudwatch.CfnCompositeAlarm:
        told = [self._on_call.ticket] if alarm.severity is Severity.TICKET else []
        if alarm.key == "page":
            told = [self._on_call.page]
        held = bool(alarm.suppressed_by)
        made = cloudwatch.CfnCompositeAlarm(
            self,
            camel(alarm.key),
            alarm_name=self.name(alarm.key),
            alarm_description=self._description(alarm),
            alarm_rule=alarm.rule(self.name),
            alarm_actions=told,
            ok_actions=told,
            actions_suppressor=self._made[alarm.suppressed_by].attr_arn if held else None,
            actions_suppressor_wait_period=SUPPRESSION_SECONDS if held else None,
            actions_suppressor_extension_period=SUPPRESSION_SECONDS if held else None,
        )
        for key in alarm.parts:  # CloudFormation does not see the dependency in the rule's text
            made.add_resource_dependency(self._made[key])
        return made

    def _description(self, alarm: MetricAlarm | CompositeAlarm) -> str:
        return f"[{alarm.severity}] {alarm.meaning} Runbook: {runbook_url(self._settings, alarm.runbook)}"
