"""The scaling law rendered into CloudFormation; infra/fleet/scaling.py makes every decision."""

from collections.abc import Sequence

from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.constructs.names import NamedMetric, camel, query
from infra.constructs.schedule import GroupSchedule
from infra.fleet.metrics import metrics
from infra.fleet.policies import READINGS_WARM_UP_SECONDS, Signal, StepPolicy
from infra.fleet.replacement import stops
from infra.fleet.scaling import ScalingLaw

_Policy = autoscaling.CfnScalingPolicy
_Query = cloudwatch.CfnAlarm.MetricDataQueryProperty
_MINUTE = 60
# The metrics behind each signal, with metric math where one is not enough. The service reports all of them, with
# 0 where nothing happened, so a missing value is unknown and is not filled in.
_READINGS: dict[Signal, dict[str, str]] = {
    Signal.WORK: {"offered": "OfferedWork", "replica_seconds": "ReplicaSeconds"},
    Signal.MODEL_P99: {"model_p99": "ModelLatency"},
    Signal.QUEUE_P99: {"queue_p99": "QueueTime"},
    Signal.BY_RULE: {"degraded": "Degraded", "requests": "Requests"},
    Signal.OTHERS_WORK: {
        "offered": "OfferedWork",
        "replica_seconds": "ReplicaSeconds",
        "cell_offered": "OfferedWork",
        "cell_replica_seconds": "ReplicaSeconds",
    },
}
_OF_THE_CELL = "cell_"  # begins the names of readings of all groups
FEWEST_REQUESTS = 20  # in a period; a share of fewer requests is not significant
_EXPRESSIONS: dict[Signal, str] = {
    Signal.WORK: "offered / replica_seconds",
    # All groups less this one: a sum over the others would be missing wherever one of them has no host at all.
    Signal.OTHERS_WORK: "(cell_offered - offered) / (cell_replica_seconds - replica_seconds)",
    Signal.BY_RULE: f"IF(requests >= {FEWEST_REQUESTS}, degraded, 0) / IF(requests > 0, requests, 1)",
}


def scaling_alarm_name(group: str, policy: str) -> str:
    """Return the name of the alarm that triggers a policy of an Auto Scaling group.

    Instance refresh refers to it by name.
    """
    return f"{group}-scale-{policy}"


class GroupScaling(Construct):
    """The policies, alarms, scheduled actions and warm pool of one Auto Scaling group."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        law: ScalingLaw,
        group: autoscaling.AutoScalingGroup,
        group_name: str,
        dimensions: dict[str, str],
    ) -> None:
        """Create the policies; `dimensions` are those of the service's metrics: Fleet, Cell, Group."""
        super().__init__(scope, id)
        self._group, self._group_name, self._dimensions = group, group_name, dimensions
        self._target_tracking(law)
        for policy in law.steps:
            self._step(policy)
        self._removal(law)
        self._refresh_stops(law)
        GroupSchedule(self, "Schedule", law=law, group=group.auto_scaling_group_name)
        if law.warm_pool.prepared:
            group.add_warm_pool(
                min_size=0,
                max_group_prepared_capacity=law.warm_pool.prepared,
                pool_state=autoscaling.PoolState.STOPPED,
                reuse_on_scale_in=True,
            )

    def _target_tracking(self, law: ScalingLaw) -> None:
        tracking = law.tracking
        dimensions = [
            _Policy.MetricDimensionProperty(name=name, value=value) for name, value in self._dimensions.items()
        ]
        parts = [
            _Policy.TargetTrackingMetricDataQueryProperty(
                id=id,
                metric_stat=_Policy.TargetTrackingMetricStatProperty(
                    metric=_Policy.MetricProperty(
                        namespace=metrics().namespace(metric), metric_name=metric, dimensions=dimensions
                    ),
                    stat=metrics().metric(metric, tuple(self._dimensions)).statistic,
                    period=tracking.period_seconds,
                ),
                return_data=False,
            )
            for id, metric in _READINGS[tracking.signal].items()
        ]
        work = _Policy.TargetTrackingMetricDataQueryProperty(
            id=tracking.signal.name.lower(),
            label="offered work a replica",
            expression=_EXPRESSIONS[tracking.signal],
            return_data=True,
        )
        _Policy(
            self,
            "Work",
            auto_scaling_group_name=self._group.auto_scaling_group_name,
            policy_type="TargetTrackingScaling",
            estimated_instance_warmup=READINGS_WARM_UP_SECONDS,
            target_tracking_configuration=_Policy.TargetTrackingConfigurationProperty(
                target_value=tracking.target,
                disable_scale_in=True,  # the law's own removal policy, below, scales in
                customized_metric_specification=_Policy.CustomizedMetricSpecificationProperty(metrics=[*parts, work]),
            ),
        )

    def _step(self, policy: StepPolicy) -> None:
        edges = [step.above - policy.threshold for step in policy.steps]
        rendered = _Policy(
            self,
            camel(policy.name),
            auto_scaling_group_name=self._group.auto_scaling_group_name,
            policy_type="StepScaling",
            adjustment_type="PercentChangeInCapacity",
            estimated_instance_warmup=READINGS_WARM_UP_SECONDS,
            min_adjustment_magnitude=1,
            metric_aggregation_type="Maximum",
            step_adjustments=[
                _Policy.StepAdjustmentProperty(
                    metric_interval_lower_bound=round(low, 6),
                    metric_interval_upper_bound=None if high is None else round(high, 6),
                    scaling_adjustment=step.percent,
                )
                for step, low, high in zip(policy.steps, edges, [*edges[1:], None], strict=True)
            ],
        )
        signals = [policy.signal, *(signal for signal, _ in policy.pressed_by)]
        expression = policy.signal.name.lower()
        if policy.pressed_by:
            pressed = " OR ".join(f"{signal.name.lower()} >= {line:g}" for signal, line in policy.pressed_by)
            expression = f"IF({pressed}, {expression}, 0)"
        self._alarm(
            policy.name,
            f"Adds instances to {self._group_name}: {policy.signal.value} is high.",
            self._signals(signals, expression, policy.period_seconds),
            threshold=policy.threshold,
            breaching=policy.breaches,
            periods=policy.periods,
            missing="missing",  # without telemetry there is neither breach nor calm, so the size is held
            action=rendered.ref,
        )

    def _removal(self, law: ScalingLaw) -> None:
        removal = law.removal
        # Removal uses simple scaling, the only policy type that waits for a cooldown; additions never wait.
        rendered = _Policy(
            self,
            "Removal",
            auto_scaling_group_name=self._group.auto_scaling_group_name,
            policy_type="SimpleScaling",
            adjustment_type="PercentChangeInCapacity",
            scaling_adjustment=-removal.percent,
            min_adjustment_magnitude=1,
            cooldown=str(removal.cooldown_seconds),
        )
        calm = " AND ".join(f"{signal.name.lower()} < {line:g}" for signal, line in removal.calm_below)
        self._alarm(
            "removal",
            f"Removes instances from {self._group_name}, slowly: every signal has been calm for "
            f"{removal.calm_seconds // _MINUTE} minutes.",
            self._signals([signal for signal, _ in removal.calm_below], f"IF({calm}, 1, 0)", removal.period_seconds),
            threshold=1,
            breaching=removal.calm_periods,
            periods=removal.calm_periods,
            missing="notBreaching",  # this alarm fires on calm, and missing data is not calm
            action=rendered.ref,
        )

    def _refresh_stops(self, law: ScalingLaw) -> None:
        for stop in stops(law):
            self._alarm(
                stop.name,
                f"Stops an instance refresh of {self._group_name}: {stop.signal.value} is over its line.",
                self._signals([stop.signal], stop.signal.name.lower(), stop.period_seconds),
                threshold=stop.line,
                breaching=stop.breaching,
                periods=stop.periods,
                missing="missing",
                action=None,
            )

    def _signals(
        self, signals: Sequence[Signal], expression: str, period: int
    ) -> list[cloudwatch.CfnAlarm.MetricDataQueryProperty]:
        """Return the queries of the signals, each under its name.

        The expression is added where it uses several of them.
        """
        readings: dict[str, str] = {}
        for signal in signals:
            readings |= _READINGS[signal]
        queries = [self._query(id, metric, period, returned=id == expression) for id, metric in readings.items()]
        for signal in dict.fromkeys(signals):
            name = signal.name.lower()
            if signal in _EXPRESSIONS:
                queries.append(
                    _Query(id=name, expression=_EXPRESSIONS[signal], label=name, return_data=name == expression)
                )
        if expression not in {signal.name.lower() for signal in signals}:
            queries.append(_Query(id="value", expression=expression, label="value", return_data=True))
        return queries

    def _query(
        self, id: str, metric: str, period: int, *, returned: bool
    ) -> cloudwatch.CfnAlarm.MetricDataQueryProperty:
        dimensions = dict(self._dimensions)
        if id.startswith(_OF_THE_CELL):
            del dimensions["Group"]
        statistic = metrics().metric(metric, tuple(dimensions)).statistic
        named = NamedMetric(id, metrics().namespace(metric), metric, tuple(dimensions.items()), statistic)
        return query(named, period, returned=returned)

    def _alarm(
        self,
        name: str,
        description: str,
        queries: list[cloudwatch.CfnAlarm.MetricDataQueryProperty],
        *,
        threshold: float,
        breaching: int,
        periods: int,
        missing: str,
        action: str | None,
    ) -> None:
        cloudwatch.CfnAlarm(
            self,
            f"{camel(name)}Alarm",
            alarm_name=scaling_alarm_name(self._group_name, name),
            alarm_description=description,
            comparison_operator="GreaterThanOrEqualToThreshold",
            threshold=threshold,
            evaluation_periods=periods,
            datapoints_to_alarm=breaching,
            metrics=queries,
            treat_missing_data=missing,
            alarm_actions=[action] if action else None,
        )
