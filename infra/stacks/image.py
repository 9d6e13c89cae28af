"""The image stack: where artifacts are kept and machine images are baked."""

from __future__ import annotations

from aws_cdk import CfnOutput
from constructs import Construct

from infra.constructs.image import Artifacts, ImagePipeline
from infra.fleet.settings import FleetSettings
from infra.stacks.base import FleetStack


class ImageStack(FleetStack):
    """ECR repository, model bucket and image pipeline."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id, settings=settings, purpose="machine images and models")
        artifacts = Artifacts(self, "Artifacts", settings=settings)
        pipeline = ImagePipeline(self, "Image", settings=settings, artifacts=artifacts)
        CfnOutput(self, "PipelineArn", value=pipeline.pipeline.attr_arn, description="Start it to bake a machine image")
        CfnOutput(self, "RepositoryUri", value=artifacts.repository.repository_uri, description="The service's images")
        CfnOutput(self, "ModelsBucket", value=artifacts.bucket.bucket_name, description="Compiled models, build logs")
