"""`peakplan bench`, `rehearse` and `tools`: what measures, what simulates, and what keeps the checkout."""

import os
import sys
from pathlib import Path

import click

from peakplan.environment import have, made
from peakplan.fleet_commands import fleet
from peakplan.passing import PASS_ON, asks_for_help, passes_on
from peakplan.running import CHECKOUT, call, execute, must_be_here, run_in_turn

# Writes figures, settings and tables into the documents.
_SHOW = "rehearsal.tools.readme"
_TORCH = ("service", "torch", "train")
_FLEETS = ("dev", "prime-day", "prime-day-small", "mistral-7b")
_DATA = ("--data", str(CHECKOUT.parent / "shared" / "data"))
_MODEL = ("--model", str(CHECKOUT / "models" / "qp-smollm2-135m"))


@click.group()
def bench() -> None:
    """Measure: each command writes a figure into docs/figures, and shows it in the documents.

    Run them in the checkout's folder, on an idle machine. One that measures another engine first installs it.

    \b
    Examples:
      peakplan bench decoding --model models/mine
      peakplan bench peers
    """


for _name, _module, _text, _first in (
    (
        "decoding",
        "rehearsal.bench.decoding",
        "Speed of the decoding strategies, and of Hugging Face's generate.",
        _MODEL,
    ),
    ("peers", "rehearsal.bench.peers", "llama.cpp, ONNX Runtime, OpenVINO and CTranslate2 beside ours.", ()),
    ("vllm", "rehearsal.bench.vllm", "vLLM on this processor beside ours.", ()),
    (
        "neuron-loop",
        "rehearsal.bench.neuron_loop",
        "The Neuron engine's loop over an emulated graph.",
        ("--questions", "1000", "--compare"),
    ),
    ("retrieval", "rehearsal.bench.retrieval", "What a search finds with plans, and with raw words.", ()),
    ("answers", "rehearsal.answers", "The time to the first three options, and whether they fit.", ()),
    ("costs", "rehearsal.bench.question_cost", "What the dearest question costs; fails above the budget.", ()),
    ("conversations", "rehearsal.bench.conversations", "Quality on whole conversations.", ()),
    ("siege", "rehearsal.siege", "Attack a service on loopback, with a seed.", ()),
    ("passed", "rehearsal.load.passed", "How many plans pass the cases of files, at 1 to 10 times the capacity.", ()),
):
    passes_on(bench, _name, _module, _TORCH, _text, *_first, then=(_SHOW,))
passes_on(
    bench,
    "load",
    "rehearsal.load.figures",
    _TORCH,
    "The service under load and faults (15 minutes).",
    *_DATA,
    then=(_SHOW,),
)
passes_on(
    bench,
    "triton",
    "rehearsal.triton",
    _TORCH,
    "What Triton adds to a generation.",
    then=(_SHOW,),
    installs=("triton",),
)


@bench.command("neuron-conformance")
@click.argument("source")
def neuron_conformance(source: str) -> None:
    """Run our loop over the real NxDI source on a CPU. SOURCE: its checkout:neuronx-distributed's checkout."""
    must_be_here("rehearsal")
    python = str(made("neuron-conformance"))
    variables = {"PEAKPLAN_NXDI_SOURCE": source}
    execute([python, "-m", "pytest", "tests/conformance/neuron"], variables=variables)


@bench.command("neuron-day", **PASS_ON)
@click.pass_context
def neuron_day(context: click.Context) -> None:
    """Measure on an inf2 or trn1, in the service's container; again: goes on.

    It is rehearsal/bench/neuron_day/on-host.sh, which needs no Python packages.
    """
    must_be_here("rehearsal")
    execute([str(CHECKOUT / "rehearsal/bench/neuron_day/on-host.sh"), *context.args])


@click.group()
def rehearse() -> None:
    """Simulate a fleet's day, or play it on a stack of light hosts.

    \b
    Examples:
      peakplan rehearse run prime-day --scenario zone-lost
      peakplan rehearse search prime-day --peak 1.1
      peakplan rehearse live --scenario surge
    """


for _name, _text in {
    "run": "Does a fleet carry its traffic through every scenario?",
    "search": "The cheapest fleets like one that carry its traffic, ranked (some 3 minutes).",
    "validate": "The simulation against the live service (7 minutes, an idle machine).",
}.items():
    passes_on(rehearse, _name, "rehearsal.twin", ("service", "fleet", "load"), _text, _name)


@rehearse.command()
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True)
def figures(seeds: int) -> None:
    """Rehearse the fleets that ship, and write the verdicts into docs/event-day.md (some 15 minutes)."""
    must_be_here("rehearsal")
    reports = []
    for name in _FLEETS:
        folder = f"runs/rehearsal/{name}"
        words = ["-m", "rehearsal.twin", "run", name, "--seeds", str(seeds), "--output", folder]
        if call([sys.executable, *words]) > 1:  # 1 is a verdict, too
            sys.exit(2)
        reports.append(f"{folder}/rehearsal.json")
    run_in_turn(["rehearsal.verdicts", *reports], [_SHOW])


@rehearse.command(**PASS_ON)
@click.pass_context
def live(context: click.Context) -> None:
    """Play scenarios on eight light hosts behind Envoy (half an hour, an idle machine); --broken PART must fail."""
    must_be_here("rehearsal")
    words = list(context.args)
    module = [sys.executable, "-m", "rehearsal.stack.rehearse"]
    if asks_for_help(words):
        execute([*module, *words])
    have("stack")
    is_broken = any(word.split("=")[0] == "--broken" for word in words)
    code = call([*module, *([] if is_broken else ["--output", "docs/figures/stack.json"]), *words])
    if code or is_broken:
        sys.exit(code)
    execute([sys.executable, "-m", _SHOW])


@click.group()
def tools() -> None:
    """Keep the checkout: environments, generated files, kernels, what a release consists of."""
    must_be_here("rehearsal")


_CHECKS = (
    (_SHOW, "--check"),
    ("rehearsal.tools.first_answer", "--check"),
    ("rehearsal.tools.gallery", "--check"),
    ("infra.fleet.alarm_table", "--check"),
    ("rehearsal.stack.rehearse", "--twin", "docs/figures/stack.json", "--check"),
)
passes_on(tools, "install", "peakplan.environment", (), "Install what commands and tests need.")
passes_on(tools, "lock", "rehearsal.tools.lock", (), "Resolve pyproject.toml anew into the requirement files.")
passes_on(tools, "alarms", "infra.fleet.alarm_table", ("fleet",), "docs/alarms.md, Prometheus rules, a Grafana board.")
passes_on(
    tools, "readme", _SHOW, ("service", "torch"), "Show figures, settings and tables in the documents as they are."
)
passes_on(
    tools,
    "gallery",
    "rehearsal.tools.gallery",
    ("service", "torch"),
    "Sixty questions and the shipped model's plans, for docs/gallery.md.",
    then=(_SHOW,),
)
passes_on(
    tools,
    "first-answer",
    "rehearsal.tools.first_answer",
    ("service", "torch"),
    "The answer that README begins with.",
    then=(_SHOW,),
)
passes_on(
    tools,
    "client-types",
    "rehearsal.tools.client_types",
    ("service",),
    "The types of clients/typescript from the OpenAPI document.",
    installs=("typescript",),
)
passes_on(
    tools,
    "fuzz",
    "tests.fuzz",
    (),
    "Search for words that fail or cost most; tests/fuzz/corpus.jsonl keeps them.",
    installs=("fuzz",),
)


@tools.command()
def check() -> None:
    """Fail where a figure, a table or a generated page is stale: a part of `make check`."""
    run_in_turn(*_CHECKS)


@tools.command()
@click.option("--check", is_flag=True, help="Build elsewhere, and compare with what is committed.")
def kernels(check: bool) -> None:
    """Build the kernel libraries of every processor from their sources; commit what changes."""
    have("kernels")
    words = ("--check",) if check else ()
    run_in_turn(("service.decoding.native.build", *words), ("rehearsal.twin.native.library", *words))


@tools.command()
def sbom() -> None:
    """Check licences, and write CycloneDX 1.6: what is installed (sbom.json), the lock (sbom-lock.json)."""
    run_in_turn(("rehearsal.tools.licences", "--check"))
    program = str(Path(sys.executable).with_name("cyclonedx-py"))
    common = ["--pyproject", "pyproject.toml", "--mc-type", "application", "--output-reproducible"]
    common += ["--spec-version", "1.6", "--output-file"]
    for words, output in (
        (["environment", sys.executable], "sbom.json"),
        (["requirements", "requirements-dev.txt"], "sbom-lock.json"),
    ):
        if code := call([program, *words, *common, output]):
            sys.exit(code)


@tools.command()
def tutorials() -> None:
    """Follow docs/tutorials to the letter in fresh folders, and time each; one trains a model."""
    have("typescript")
    os.environ["PEAKPLAN_TUTORIALS"] = "1"
    run_in_turn(("pytest", "tests/docs/test_tutorials.py", "--durations", "0"))


@fleet.command()
@click.argument("name", metavar="FLEET")
def checkov(name: str) -> None:
    """Print what checkov finds in a fleet's CloudFormation and is not accepted. Installs it (0.2 GB)."""
    must_be_here("infra")
    program = made("checkov").with_name("checkov")
    if code := call([sys.executable, "-m", "peakplan", "fleet", "synth", name]):
        sys.exit(code)
    templates = sorted(map(str, Path("cdk.out").glob("*.template.json")))
    words = ["--framework", "cloudformation", "--compact", "--quiet", "--skip-download"]
    sys.exit(call([str(program), "--file", *templates, *words]))
