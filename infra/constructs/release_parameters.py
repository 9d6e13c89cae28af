"""The parameters of a cell's stack that choose its release and how fast instances are replaced, for one template."""

from __future__ import annotations

from aws_cdk import CfnCondition, CfnParameter, Fn, Stack
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.fleet.images import NEWEST, NEWEST_OF, Image, image_of, images
from infra.fleet.parts import Group
from infra.fleet.replacement import FAST
from infra.fleet.settings import FleetSettings


class ReleaseParameters(Construct):
    """The release and the speed of a cell's stack.

    A stack is made with a release, or with the one that was baked last where `cdk deploy` is not told which. It keeps
    it through every other change, and goes back to one by a change of this parameter alone (operations/rollback.py).
    Where hosts are of two architectures, a second parameter has the release's other image.

    A stack rests at the fast speed and only a deploy asks for the careful one: CloudFormation's way back out of an
    update takes the policy from before it.
    """

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings, cell: str) -> None:
        super().__init__(scope, id)
        self._settings = settings
        self._images = {image.stack_parameter: self._image(image) for image in images(settings)}
        speed = CfnParameter(
            self,
            "RefreshSpeed",
            allowed_values=["careful", "fast"],
            default="fast",
            description="careful: a deploy, with checkpoints and alarms; stacks rest at fast",
        )
        speed.override_logical_id("RefreshSpeed")
        # An update that changed nothing but the update policy would be no update.
        ssm.CfnParameter(
            self,
            "Speed",
            type="String",
            name=f"/peakplan/{settings.name}/{cell}/refresh-speed",
            value=speed.value_as_string,
            description=f"How instances of {cell} are replaced by the next change of its stack",
        )
        self._fast = CfnCondition(self, "Fast", expression=Fn.condition_equals(speed.value_as_string, "fast"))
        self._fast.override_logical_id("FastRefresh")
        self.image_id = self._images[images(settings)[0].stack_parameter]

    def _image(self, image: Image) -> str:
        """Return the id of the image that the stack is told, or of the one that its parameter in SSM has."""
        name, said = image.stack_parameter, f"an immutable machine image for {image.architecture}"
        named = CfnParameter(
            self,
            name,
            default=NEWEST,
            allowed_pattern="ami-[0-9a-z]+",
            description=f"The release: {said}; {NEWEST}: what was baked last",
        )
        newest = CfnParameter(
            self,
            NEWEST_OF.format(name),
            type="AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>",
            default=image.parameter,
            description="Written by the image pipeline: peakplan fleet bake",
        )
        unnamed = CfnCondition(self, f"{name}Left", expression=Fn.condition_equals(named.value_as_string, NEWEST))
        for each, id in ((named, name), (newest, NEWEST_OF.format(name)), (unnamed, f"{name}Left")):
            each.override_logical_id(id)
        return Fn.condition_if(unnamed.logical_id, newest.value_as_string, named.value_as_string).to_string()

    def image_for(self, group: Group) -> str:
        """Return the id of the image that the hosts of a group boot."""
        return self._images[image_of(self._settings, group).stack_parameter]

    def hurry_where_asked(self, group: autoscaling.CfnAutoScalingGroup) -> None:
        """Let a fast refresh replace every instance at once.

        Alarms that are already in ALARM state must not stop it.
        """
        preferences = "UpdatePolicy.AutoScalingInstanceRefresh.Preferences"
        policy = Stack.of(self).resolve(group.cfn_options.update_policy)
        careful = policy["autoScalingInstanceRefresh"]["preferences"]
        careful = {name[0].upper() + name[1:]: value for name, value in careful.items()}
        fast = {
            "CheckpointPercentages": list(FAST.checkpoints),
            "CheckpointDelay": FAST.checkpoint_seconds,
            "MaxHealthyPercentage": FAST.max_healthy_percent,
            "MinHealthyPercentage": 100 - FAST.lacking_percent,
        }
        for name, value in fast.items():
            group.add_override(f"{preferences}.{name}", self._either(value, careful[name]))
        alarms = {"Alarms": careful["AlarmSpecification"]["alarms"]}
        group.add_override(f"{preferences}.AlarmSpecification", self._either({"Ref": "AWS::NoValue"}, alarms))

    def _either(self, fast: object, careful: object) -> dict[str, list[object]]:
        return {"Fn::If": [self._fast.logical_id, fast, careful]}
