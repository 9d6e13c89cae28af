"""The artifact stores, the pipeline that builds machine images from ami/, and the deletion of unused images."""

import hashlib
import json
from pathlib import Path

import yaml
from aws_cdk import IgnoreMode, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_imagebuilder as imagebuilder
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.constructs.acknowledge import accept_star, acknowledge, allow, objects_of
from infra.constructs.network import HTTP, HTTPS, ZONES_BY_NAME, flow_logs
from infra.constructs.storage import private_bucket
from infra.fleet.cost import volume_gib
from infra.fleet.images import Image, commit, images, release_tags
from infra.fleet.parts import REPOSITORY_ROOT, ROOT_DEVICE, TAG
from infra.fleet.settings import FleetSettings

_AGENT_COMPONENT = "1.0.1"
_NEWEST = "x.x.x"  # which Image Builder resolves when it builds


def component_parameters(settings: FleetSettings, image: Image) -> dict[str, str]:
    """Return the parameters of the container's document: the fleet file's model, for each chip of its groups."""
    model = settings.model
    compiled_for: dict[str, object] = {
        "tensor-parallel": model.tensor_parallel,
        "max-prompt-tokens": model.max_prompt_tokens,
        "max-new-tokens": model.max_plan_tokens,
        "sequence-length": model.sequence_length,
        "speculation-length": model.speculation_length,
        "batch-size": model.batch_size,
        "graph": model.graph,
    }
    if model.context_buckets:
        compiled_for["context-buckets"] = ",".join(map(str, model.context_buckets))
    chips = dict.fromkeys(group.chip for group in [image.baked_on, *image.groups])
    decided = {
        "ENGINE": _engine(settings, image),
        "TRITON_HOSTS": "neuron",
        "TENSOR_PARALLEL": model.tensor_parallel,
        "MAX_PROMPT_TOKENS": model.max_prompt_tokens,
        "STRATEGY": model.strategy,
        "BATCH_SIZE": model.batch_size,
        "DEVICE_RIGHTS": model.device_rights if image.baked_on.engine == "neuron" else "none",
        "LOST_REPLICA_SECONDS": model.lost_replica_seconds,
    }
    options = [f"--{name} {value}" for name, value in compiled_for.items()]
    return {
        "CHIPS": " ".join(chips),
        "BOOT_SECONDS": str(settings.boot_seconds),
        "COMPILE": " ".join([*options, *(["--weight-layout"] if model.weight_layout else [])]),
        "SETTINGS": " ".join(f"PEAKPLAN_{name}={value}" for name, value in decided.items()),
    }


def _engine(settings: FleetSettings, image: Image) -> str:
    """Return what runs the replicas. Triton decodes one plan at a time; batches need the gateway's own."""
    if image.baked_on.engine != "neuron":
        return "torch"
    return "triton" if settings.model.batch_size == 1 else "neuron"


def amazon_components(stack: Stack, image: Image) -> list[str]:
    """Return Amazon's own components: the CloudWatch agent, which ami/agent configures, and what the base image lacks.

    Neuron's images have the AWS CLI; Canonical's have not, and Ubuntu 24.04 has no package of it.
    """
    arn = f"arn:{stack.partition}:imagebuilder:{stack.region}:aws:component"
    agent = f"{arn}/amazon-cloudwatch-agent-linux/{_AGENT_COMPONENT}"
    return [agent] if image.architecture == "x86_64" else [agent, f"{arn}/aws-cli-version-2-linux/{_NEWEST}"]


def declared_parameters(document: Path) -> list[str]:
    """Return the parameters that a component's document declares; Image Builder refuses any other."""
    content = yaml.safe_load(document.read_text(encoding="utf-8"))
    return [name for parameter in content.get("parameters", []) for name in parameter]


AMI = REPOSITORY_ROOT / "ami"
# What service/Dockerfile copies of the source, as exceptions to the exclusions.
_SOURCES = ["!service", "!service/**", "!clients", "!clients/peakplan_client", "!clients/peakplan_client/**"]
# These files make no difference to what runs; without them an asset's hash depends on the sources alone.
_NOT_SHIPPED = ["**/__pycache__", "**/*.pyc", "**/.*"]
_MANAGED = ("AmazonSSMManagedInstanceCore", "EC2InstanceProfileForImageBuilder")


class Artifacts(Construct):
    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id)
        # An overwritten compiled model can be restored.
        self.bucket = private_bucket(self, "Models", settings, logs="ModelsAccessLogs", days=None, former_days=90)


class ImagePipelines(Construct):
    """The Image Builder pipelines over the documents in ami/: one for each architecture of the fleet's processors.

    They are started by people and have no schedule. `pipelines` has each by its image.
    """

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings, artifacts: Artifacts) -> None:
        super().__init__(scope, id)
        self._settings, self._artifacts = settings, artifacts
        self._release = self._assets()
        role = self._role(self._release, artifacts)
        self._profile = iam.CfnInstanceProfile(self, "Profile", roles=[role.role_name])
        ImageLifecycle(self, "Lifecycle", settings=settings)
        main, *others = images(settings)
        # The documents are the same for all: what differs is in parameters, and in what the base image has.
        contents = self._contents(main)
        documents = sorted((AMI / "components").glob("*.yaml"))
        self._components = {path: self._component(path, contents) for path in documents}
        self._subnet, self._security_group = self._network()
        self.pipelines = {main: self._pipeline(self, main, contents)}
        for image in others:
            scope = Construct(self, image.suffix.capitalize())
            self.pipelines[image] = self._pipeline(scope, image, self._contents(image))

    def _pipeline(self, scope: Construct, image: Image, contents: list[str]) -> imagebuilder.CfnImagePipeline:
        settings = self._settings
        said = f"on Neuron SDK {settings.model.sdk}" if image.base_sdk else f"for {image.architecture}"
        return imagebuilder.CfnImagePipeline(
            scope,
            "Pipeline",
            name=self._name(image),
            description=f"Machine image of {settings.name}: {settings.model.id} {said}",
            image_recipe_arn=self._recipe(scope, image, contents).attr_arn,
            infrastructure_configuration_arn=self._infrastructure(scope, image).attr_arn,
            distribution_configuration_arn=self._distribution(scope, image).attr_arn,
            enhanced_image_metadata_enabled=True,
            image_tags={TAG: settings.name},  # by which the images' lifecycle knows them
            image_tests_configuration=imagebuilder.CfnImagePipeline.ImageTestsConfigurationProperty(
                image_tests_enabled=True, timeout_minutes=90
            ),
            image_scanning_configuration={"imageScanningEnabled": True} if settings.machine_image.scan else None,
        )

    def _name(self, image: Image) -> str:
        return "-".join(filter(None, ("peakplan", self._settings.name, image.suffix)))

    def _assets(self) -> dict[str, assets.Asset]:
        """Return the assets of an image: the service, the model's trained parts, and the host's scripts and units."""
        sources = {
            "service": (REPOSITORY_ROOT, ["*", *_SOURCES, "!requirements-image.txt", *_NOT_SHIPPED]),
            "model": (REPOSITORY_ROOT / self._settings.model.folder, _NOT_SHIPPED),
            "host": (AMI, ["components", *_NOT_SHIPPED]),
        }
        return {
            name: assets.Asset(self, name.capitalize(), path=str(folder), exclude=excluded, ignore_mode=IgnoreMode.GIT)
            for name, (folder, excluded) in sources.items()
        }

    def _role(self, release: dict[str, assets.Asset], artifacts: Artifacts) -> iam.Role:
        role = iam.Role(
            self,
            "Builder",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description=f"Bakes the machine image of {self._settings.name}",
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in _MANAGED],
        )
        bucket = next(iter(release.values())).bucket  # all assets share the bucket of `cdk bootstrap`
        allow(
            role,
            "Release",
            ["s3:GetObject"],
            *(bucket.arn_for_objects(each.s3_object_key) for each in release.values()),
        )
        allow(role, "ModelsAndLogs", ["s3:GetObject", "s3:PutObject"], artifacts.bucket.arn_for_objects("*"))
        allow(role, "Bucket", ["s3:ListBucket"], artifacts.bucket.bucket_arn)
        for policy in _MANAGED:
            acknowledge(
                role,
                f"AwsSolutions::AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{policy}]",
                "What Image Builder's documentation asks of the role of a build, kept current by AWS",
            )
        reason = "The bucket is for what builds read and write, and nothing else"
        accept_star(role, objects_of(artifacts.bucket), reason)
        return role

    def _decided(self, image: Image) -> dict[str, str]:
        settings = self._settings
        return {"SDK": settings.model.sdk, "CONTAINER": image.container, **component_parameters(settings, image)}

    def _contents(self, image: Image) -> list[str]:
        """Return what an image is made of. A version's contents are immutable, so its number depends on all of them."""
        decided = json.dumps(self._decided(image), sort_keys=True)
        return [*(asset.asset_hash for asset in self._release.values()), decided]

    def _recipe(self, scope: Construct, image: Image, contents: list[str]) -> imagebuilder.CfnImageRecipe:
        known = self._decided(image) | {name.upper(): asset.s3_object_url for name, asset in self._release.items()}
        base = ssm.StringParameter.value_for_string_parameter(self, image.base_parameter)
        components = self._components
        configured = imagebuilder.CfnImageRecipe.ComponentConfigurationProperty
        parameter = imagebuilder.CfnImageRecipe.ComponentParameterProperty
        return imagebuilder.CfnImageRecipe(
            scope,
            "Recipe",
            # The base image is known only at deploy time, too late for the version, so the name contains it.
            name=f"{self._name(image)}-{base}",
            version=_version(*contents, *(component.version for component in components.values())),
            parent_image=base,
            components=[
                *(configured(component_arn=arn) for arn in amazon_components(Stack.of(self), image)),
                *(
                    configured(
                        component_arn=component.attr_arn,
                        parameters=[parameter(name=name, value=[known[name]]) for name in declared_parameters(path)]
                        or None,
                    )
                    for path, component in components.items()
                ),
            ],
            block_device_mappings=[
                imagebuilder.CfnImageRecipe.InstanceBlockDeviceMappingProperty(
                    device_name=ROOT_DEVICE,
                    ebs=imagebuilder.CfnImageRecipe.EbsInstanceBlockDeviceSpecificationProperty(
                        encrypted=True,
                        volume_size=min(volume_gib(self._settings, group) for group in image.groups),
                        volume_type="gp3",
                        delete_on_termination=True,
                    ),
                )
            ],
        )

    def _component(self, document: Path, contents: list[str]) -> imagebuilder.CfnComponent:
        text = document.read_text(encoding="utf-8")
        return imagebuilder.CfnComponent(
            self,
            f"Component-{document.stem}",
            name=f"peakplan-{self._settings.name}-{document.stem}",
            platform="Linux",
            version=_version(text, *contents),
            data=text,
        )

    def _network(self) -> tuple[str, str]:
        """Return the ids of the subnet and the security group of builds, with internet access, which cells lack."""
        vpc = ec2.Vpc(
            self,
            "BuildNetwork",
            vpc_name=f"peakplan-{self._settings.name}-image",
            max_azs=1,
            nat_gateways=1,
            subnet_configuration=[
                ec2.SubnetConfiguration(name="Build", subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS),
                ec2.SubnetConfiguration(name="Nat", subnet_type=ec2.SubnetType.PUBLIC, map_public_ip_on_launch=False),
            ],
            restrict_default_security_group=False,
        )
        acknowledge(vpc, ZONES_BY_NAME, "A build needs the chip, which not every zone has")
        flow_logs(self, vpc, self._settings)
        security_group = ec2.SecurityGroup(
            self, "BuildSecurityGroup", vpc=vpc, description="Image builds", allow_all_outbound=False
        )
        security_group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(HTTPS), "Packages, containers and AWS")
        # Canonical's machine images and containers fetch packages from <region>.ec2.archive.ubuntu.com and, for arm64,
        # from its ports, which speak no TLS; apt verifies the signatures.
        security_group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(HTTP), "Packages of Ubuntu, which are signed")
        return vpc.private_subnets[0].subnet_id, security_group.security_group_id

    def _infrastructure(self, scope: Construct, image: Image) -> imagebuilder.CfnInfrastructureConfiguration:
        """Return the build instance's configuration: it has the accelerator, because a plan must prove the model."""
        return imagebuilder.CfnInfrastructureConfiguration(
            scope,
            "Infrastructure",
            name=self._name(image),
            instance_profile_name=self._profile.ref,
            instance_types=[image.baked_on.instance_type],
            subnet_id=self._subnet,
            security_group_ids=[self._security_group],
            instance_metadata_options=imagebuilder.CfnInfrastructureConfiguration.InstanceMetadataOptionsProperty(
                http_tokens="required", http_put_response_hop_limit=1
            ),
            terminate_instance_on_failure=True,
            logging=imagebuilder.CfnInfrastructureConfiguration.LoggingProperty(
                s3_logs=imagebuilder.CfnInfrastructureConfiguration.S3LogsProperty(
                    s3_bucket_name=self._artifacts.bucket.bucket_name, s3_key_prefix="image-builds"
                )
            ),
        )

    def _distribution(self, scope: Construct, image: Image) -> imagebuilder.CfnDistributionConfiguration:
        """Return the distribution configuration.

        It stores the image's id in the parameter that the next deploy reads, and tags the image with its contents.
        """
        settings, kind = self._settings, imagebuilder.CfnDistributionConfiguration
        return kind(
            scope,
            "Distribution",
            name=self._name(image),
            distributions=[
                kind.DistributionProperty(
                    region=settings.region,
                    ami_distribution_configuration={
                        "Name": f"{self._name(image)}-{{{{ imagebuilder:buildDate }}}}",
                        "AmiTags": release_tags(
                            settings, {name: asset.asset_hash for name, asset in self._release.items()}, commit()
                        ),
                    },
                    ssm_parameter_configurations=[
                        kind.SsmParameterConfigurationProperty(
                            parameter_name=image.parameter, data_type="aws:ec2:image"
                        )
                    ],
                )
            ],
        )


# A cell that scales or heals starts instances of its release within a quarter, so what serves is not deleted, and the
# newest releases stay for rollbacks.
OLD_MONTHS, UNUSED_MONTHS, KEPT = 6, 3, 5
_DELETES_IMAGES = "service-role/EC2ImageBuilderLifecycleExecutionPolicy"


class ImageLifecycle(Construct):
    """The lifecycle policy of a fleet's machine images, each of which keeps a snapshot of a hundred gigabytes.

    Image Builder deletes what is old, is not among the newest, and has started no instance for long. Not run in AWS.
    """

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id)
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("imagebuilder.amazonaws.com"),
            description=f"Deletes old machine images of {settings.name}",
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(_DELETES_IMAGES)],
        )
        acknowledge(
            role,
            f"AwsSolutions::AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{_DELETES_IMAGES}]",
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


def _version(*contents: str) -> str:
    digest = hashlib.sha256("\n".join(contents).encode()).hexdigest()
    return f"1.0.{int(digest[:7], 16)}"
