"""The scaling law in CloudFormation: infra/fleet/scaling.py decides everything, this renders it and nothing more."""

from __future__ import annotations

from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.fleet.metrics import metrics
from infra.fleet.policies import Signal, StepPolicy
from infra.fleet.scaling import ScalingLaw

_Policy = autoscaling.CfnScalingPolicy
_Query = cloudwatch.CfnAlarm.MetricDataQueryProperty
_MINUTE = 60


def scaling_alarm_name(group: str, policy: str) -> str:
    """The name of the alarm that fires a policy of an Auto Scaling group; instance refresh refers to it by name."""
    return f"{group}-scale-{policy}"


class GroupScaling(Construct):
    """Policies, their alarms, scheduled actions and the warm pool of one Auto Scaling group."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        law: ScalingLaw,
        group: autoscaling.AutoScalingGroup,
        group_name: str,
        dimensions: dict[str, str],
        load_balancer: str,
    ) -> None:
        """`dimensions` are those of the service's metrics (Fleet, Cell, Group); `load_balancer` is app/NAME/ID."""
        super().__init__(scope, id)
        self._group, self._group_name = group, group_name
        self._dimensions, self._load_balancer = dimensions, load_balancer
        self._target_tracking(law)
        for policy in law.steps:
            self._step(policy)
        self._removal(law)
        self._schedule(law)
        if law.warm_pool.size:
            group.add_warm_pool(
                min_size=law.warm_pool.size,
                max_group_prepared_capacity=law.warm_pool.prepared,
                pool_state=autoscaling.PoolState.STOPPED,
                reuse_on_scale_in=True,
            )

    def _target_tracking(self, law: ScalingLaw) -> None:
        tracking = law.tracking
        metric = metrics().metric("OutstandingPerReplica", tuple(self._dimensions))
        dimensions = [
            _Policy.MetricDimensionProperty(name=name, value=value) for name, value in self._dimensions.items()
        ]
        reading = _Policy.TargetTrackingMetricDataQueryProperty(
            id="outstanding",
            metric_stat=_Policy.TargetTrackingMetricStatProperty(
                metric=_Policy.MetricProperty(
                    namespace=metrics().namespace("OutstandingPerReplica"),
                    metric_name="OutstandingPerReplica",
                    dimensions=dimensions,
                ),
                stat=metric.statistic,
                period=tracking.period_seconds,
            ),
            return_data=False,
        )
        clamped = _Policy.TargetTrackingMetricDataQueryProperty(
            id="clamped",
            label="outstanding work a replica",
            expression=f"IF(outstanding > {tracking.highest:g}, {tracking.highest:g}, outstanding)",
            return_data=True,
        )
        _Policy(
            self,
            "Outstanding",
            auto_scaling_group_name=self._group.auto_scaling_group_name,
            policy_type="TargetTrackingScaling",
            target_tracking_configuration=_Policy.TargetTrackingConfigurationProperty(
                target_value=tracking.target,
                disable_scale_in=True,  # removal is the law's own policy, below
                customized_metric_specification=_Policy.CustomizedMetricSpecificationProperty(
                    metrics=[reading, clamped]
                ),
            ),
        )

    def _step(self, policy: StepPolicy) -> None:
        queries, unit = self._signal(policy.signal, policy.period_seconds)
        edges = [step.above - policy.threshold for step in policy.steps]
        rendered = _Policy(
            self,
            policy.name.capitalize(),
            auto_scaling_group_name=self._group.auto_scaling_group_name,
            policy_type="StepScaling",
            adjustment_type="PercentChangeInCapacity",
            min_adjustment_magnitude=1,
            metric_aggregation_type="Maximum",
            step_adjustments=[
                _Policy.StepAdjustmentProperty(
                    metric_interval_lower_bound=_in(unit, low),
                    metric_interval_upper_bound=None if high is None else _in(unit, high),
                    scaling_adjustment=step.percent,
                )
                for step, low, high in zip(policy.steps, edges, [*edges[1:], None], strict=True)
            ],
        )
        self._alarm(
            policy.name,
            f"Adds instances to {self._group_name}: {policy.signal.value} is high.",
            queries,
            threshold=_in(unit, policy.threshold),
            periods=policy.breaches,
            action=rendered.ref,
        )

    def _removal(self, law: ScalingLaw) -> None:
        removal = law.removal
        # Simple scaling, because only its policies wait for a cooldown; additions never do.
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
        queries: list[cloudwatch.CfnAlarm.MetricDataQueryProperty] = []
        calm = []
        for signal, line in removal.calm_below:
            read, unit = self._signal(signal, removal.period_seconds, returned=False)
            queries += read
            # Where nobody asks, nothing is reported, and that is calm.
            calm.append(f"FILL({signal.name.lower()}, 0) < {_in(unit, line):g}")
        condition = f"IF({' AND '.join(calm)}, 1, 0)"
        queries.append(_Query(id="calm", expression=condition, label="calm", return_data=True))
        self._alarm(
            "removal",
            f"Removes instances from {self._group_name}, slowly: every signal has been calm for "
            f"{removal.calm_seconds // _MINUTE} minutes.",
            queries,
            threshold=1,
            periods=removal.calm_periods,
            action=rendered.ref,
        )

    def _schedule(self, law: ScalingLaw) -> None:
        for floor in law.schedule:
            autoscaling.CfnScheduledAction(
                self,
                f"At-{floor.name}",
                auto_scaling_group_name=self._group.auto_scaling_group_name,
                start_time=floor.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
                min_size=floor.minimum,
            )

    def _signal(
        self, signal: Signal, period: int, *, returned: bool = True
    ) -> tuple[list[cloudwatch.CfnAlarm.MetricDataQueryProperty], float]:
        """The queries that end in a signal, and by what its unit in the law is divided for CloudWatch's."""
        name = signal.name.lower()
        load_balancer = {"LoadBalancer": self._load_balancer}
        if signal is Signal.OUTSTANDING:
            return [self._query(name, "OutstandingPerReplica", self._dimensions, period, returned=returned)], 1.0
        if signal in (Signal.P90, Signal.P99):
            query = self._query(name, "TargetResponseTime", load_balancer, period, statistic=name, returned=returned)
            return [query], 1000.0  # the balancer reports seconds
        parts = [
            self._query("degraded_answers", "Degraded", self._dimensions, period),
            self._query("requests", "Requests", self._dimensions, period),
        ]
        # Where nobody asks, nobody gets a degraded answer.
        share = "IF(FILL(requests, 0) > 0, FILL(degraded_answers, 0) / FILL(requests, 1), 0)"
        return [*parts, _Query(id=name, expression=share, label="degraded share", return_data=returned)], 1.0

    def _query(
        self,
        id: str,
        metric: str,
        dimensions: dict[str, str],
        period: int,
        *,
        statistic: str | None = None,
        returned: bool = False,
    ) -> cloudwatch.CfnAlarm.MetricDataQueryProperty:
        known = metrics().metric(metric, tuple(dimensions))
        return _Query(
            id=id,
            metric_stat=cloudwatch.CfnAlarm.MetricStatProperty(
                metric=cloudwatch.CfnAlarm.MetricProperty(
                    namespace=metrics().namespace(metric),
                    metric_name=metric,
                    dimensions=[
                        cloudwatch.CfnAlarm.DimensionProperty(name=name, value=value)
                        for name, value in dimensions.items()
                    ],
                ),
                stat=statistic or known.statistic,
                period=period,
            ),
            return_data=returned,
        )

    def _alarm(
        self,
        name: str,
        description: str,
        queries: list[cloudwatch.CfnAlarm.MetricDataQueryProperty],
        *,
        threshold: float,
        periods: int,
        action: str,
    ) -> None:
        cloudwatch.CfnAlarm(
            self,
            f"{name.capitalize()}Alarm",
            alarm_name=scaling_alarm_name(self._group_name, name),
            alarm_description=description,
            comparison_operator="GreaterThanOrEqualToThreshold",
            threshold=threshold,
            evaluation_periods=periods,
            datapoints_to_alarm=periods,
            metrics=queries,
            treat_missing_data="notBreaching",
            alarm_actions=[action],
        )


def _in(divisor: float, value: float) -> float:
    return round(value / divisor, 6)
