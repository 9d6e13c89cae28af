"""What settings may choose from, and the defaults that other modules share. It imports nothing of the service."""

from pathlib import Path
from typing import Literal

# torch    a process for each replica, on this machine's CPU
# neuron   a process for each replica, on its own NeuronCores: runs what `peakplan compile` compiled of the model
# triton   a Triton server on this machine that hosts the replicas, each running one of the `HostedName`s
# openai   servers with OpenAI's completions interface, such as vLLM, that run the model folder's export
EngineName = Literal["torch", "neuron", "triton", "openai"]
HostedName = Literal["torch", "neuron"]

# auto      int8 where our kernels run, else bfloat16 where the CPU multiplies it fast, else float32
# int8      our own kernels (`forward_ms` in docs/figures/decoding.json has what each takes)
# bfloat16  torch kernels
# float32   torch kernels; the reference
Precision = Literal["auto", "int8", "bfloat16", "float32"]
KernelChoice = Literal["auto", "avx512vnni", "avxvnni", "avx2", "neon", "torch"]

Strategy = Literal["medusa", "autoregressive", "draft"]
Order = Literal["oldest", "newest", "adaptive"]
# off       the model plans whatever it can
# overload  so it does, and where it cannot plan all, those go first for whom it matters most
# always    the reader plans at once what the bound in the model's reader.json lets it
Routing = Literal["off", "overload", "always"]

# connection   the address of the connection
# forwarded    the newest address of X-Forwarded-For: a load balancer's own client
# certificate  the client certificate that the load balancer verified
# token        the JWT that the load balancer verified
CallerSource = Literal["connection", "forwarded", "certificate", "token"]

SHIPPED_MODEL = Path(__file__).parents[2] / "models" / "qp-smollm2-135m"
MAX_PROMPT_TOKENS = 384
PREFIX_CACHE_BYTES = 128 * 2**20  # about 2,700 tokens of the shipped model: some 70 conversations
DEADLINE_MS = 300  # of requests that name none
ADMISSION_QUANTILE = 0.7
HANG_SECONDS = 1.0
