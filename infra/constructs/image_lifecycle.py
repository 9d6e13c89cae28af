"""The end of machine images that nobody boots any more: each keeps a snapshot of a hundred gigabytes.

Image Builder deletes what is old, is not among the newest, and has started no instance for long. Not run in AWS.
"""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_imagebuilder as imagebuilder
from constructs import Construct

from infra.constructs.acknowledge import acknowledge
from infra.fleet.images import images
from infra.fleet.parts import TAG
from infra.fleet.settings import FleetSettings

# A cell that scales or heals starts instances of its release within a quarter, so what serves is not deleted, and the
# newest releases stay for rollbacks.
OLD_MONTHS, UNUSED_MONTHS, KEPT = 6, 3, 5
_MANAGED = "service-role/EC2ImageBuilderLifecycleExecutionPolicy"


class ImageLifecycle(Construct):
    """The lifecycle policy of a fleet's machine images."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id)
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("imagebuilder.amazonaws.com"),
            description=f"Deletes old machine images of {settings.name}",
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(_MANAGED)],
        )
        acknowledge(
            role,
            f"AwsSolutions::AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{_MANAGED}]",
            "What the role of a lifecycle policy is to have: it may delete only what Image Builder made and tagged so "
            "(EC2 Image Builder user guide, Manage lifecycle policies: prerequisites)",
        )
        kind, kept = imagebuilder.CfnLifecyclePolicy, KEPT * len(images(settings))
        kind(
            self,
            "Policy",
            name=f"peakplan-{settings.name}",
            description=f"Images of {settings.name} that are {OLD_MONTHS} months old and were not started for "
            f"{UNUSED_MONTHS}, but for the newest {kept}",
            execution_role=role.role_arn,
            resource_type="AMI_IMAGE",
            policy_details=[
                kind.PolicyDetailProperty(
                    action=kind.ActionProperty(
                        type="DELETE", include_resources=kind.IncludeResourcesProperty(amis=True, snapshots=True)
                    ),
                    filter=kind.FilterProperty(type="AGE", value=OLD_MONTHS, unit="MONTHS", retain_at_least=kept),
                    exclusion_rules=kind.ExclusionRulesProperty(
                        amis=kind.AmiExclusionRulesProperty(
                            is_public=False, last_launched=kind.LastLaunchedProperty(unit="MONTHS", value=UNUSED_MONTHS)
                        )
                    ),
                )
            ],
            resource_selection=kind.ResourceSelectionProperty(tag_map={TAG: settings.name}),
        )
