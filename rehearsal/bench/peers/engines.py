"""Each peer behind one small interface; runs in the peers' environment, which has no torch.

A forward reads some tokens after those that are cached. Where the engine allows it, a timed forward has no LM head, as
ours has none: what an engine cannot leave out, its note says.
"""

import ctypes
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Floats = NDArray[np.float32]
POSITIONS = 640  # room in caches: the longest prompt and plan
_FEW_TOKENS = 64  # that CTranslate2 keeps where a forward is to have no LM head


def read_weights(checkpoint: Path) -> dict[str, Floats]:
    """Return every weight in float32 by Hugging Face's names."""
    return {name: weight.astype(np.float32) for name, weight in load_file(checkpoint / "model.safetensors").items()}


def token_names(checkpoint: Path, config: dict[str, Any]) -> list[str]:
    """Return every token's text by its id, special ones included. Raises ValueError unless the tokenizer is BPE."""
    described = json.loads((checkpoint / "tokenizer.json").read_text(encoding="utf-8"))
    if described["model"]["type"] != "BPE":
        raise ValueError(f"{checkpoint} has a tokenizer of type {described['model']['type']}, and only BPE is written")
    names = {index: name for name, index in described["model"]["vocab"].items()}
    names |= {token["id"]: token["content"] for token in described["added_tokens"]}
    return [names.get(index, f"<unused{index}>") for index in range(config["vocab_size"])]


class PeerEngine(Protocol):
    """One peer with the tuned weights loaded."""

    name: str  # package and version
    note: str  # what must be known to read its figures

    def reset(self) -> None:
        """Forget the cache."""

    def forward(self, tokens: list[int]) -> None:
        """Read tokens after the cached ones, up to the last hidden state where the engine allows it."""

    def logits(self, tokens: list[int]) -> Floats:
        """Read tokens after the cached ones, and return the last token's logits [V]."""


class LlamaCpp:
    """Runs llama.cpp through llama-cpp-python's low-level interface."""

    note = ""

    def __init__(self, checkpoint: Path, threads: int, *, file: str) -> None:
        import llama_cpp

        self._api = llama_cpp
        self.name = f"llama-cpp-python {version('llama-cpp-python')}"
        llama_cpp.llama_backend_init()
        self._logs = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._logs, ctypes.c_void_p(0))
        shape = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(str(checkpoint / file).encode(), shape)
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = POSITIONS, 512, 512
        parameters.n_threads = parameters.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self.model, parameters)
        if not self._context:
            raise RuntimeError(f"llama.cpp cannot load {file}")
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self._vocabulary_size: int = llama_cpp.llama_vocab_n_tokens(self.vocabulary)
        self._batch = llama_cpp.llama_batch_init(512, 0, 1)
        self._cached = 0

    def reset(self) -> None:
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), False)
        self._cached = 0

    def forward(self, tokens: list[int]) -> None:
        self._decode(tokens, with_logits=False)
        self._api.llama_synchronize(self._context)

    def logits(self, tokens: list[int]) -> Floats:
        self._decode(tokens, with_logits=True)
        pointer = self._api.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(pointer, (self._vocabulary_size,))

    def _decode(self, tokens: list[int], *, with_logits: bool) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index] = token
            batch.pos[index] = self._cached + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = 0
        batch.logits[len(tokens) - 1] = with_logits
        if status := self._api.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode answered {status}")
        self._cached += len(tokens)


class OnnxRuntime:
    """ONNX Runtime on the graph of onnx_graph.py; keys and values stay in its own buffers."""

    note = ""

    def __init__(self, checkpoint: Path, threads: int, *, scheme: str) -> None:
        import onnxruntime

        self._runtime = onnxruntime
        self.name = f"onnxruntime {onnxruntime.__version__}"
        config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.add_session_config_entry("session.force_spinning_stop", "1")  # what waits must not slow the next peer
        self._sessions = {}
        for head in (False, True):
            path = checkpoint / f"{scheme}{'-head' if head else ''}.onnx"
            if not path.is_file():
                _write_onnx(checkpoint, config, scheme, head, path)
            self._sessions[head] = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        layers = config["num_hidden_layers"]
        self._names = [f"{index}.{part}" for index in range(layers) for part in ("key", "value")]
        head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        self._empty = np.zeros((1, config["num_key_value_heads"], 0, head_dim), np.float32)
        self.reset()

    def reset(self) -> None:
        self._past = [self._runtime.OrtValue.ortvalue_from_numpy(self._empty) for _ in self._names]
        self._cached = 0

    def forward(self, tokens: list[int]) -> None:
        self._run(tokens, head=False)

    def logits(self, tokens: list[int]) -> Floats:
        found: Floats = self._run(tokens, head=True).numpy().reshape(-1)
        return found

    def _run(self, tokens: list[int], *, head: bool) -> Any:
        value = self._runtime.OrtValue.ortvalue_from_numpy
        self._cached += len(tokens)
        feeds = {
            "tokens": value(np.array([tokens], np.int64)),
            "last_position": value(np.array([self._cached - 1], np.int32)),
            "total": value(np.array(self._cached, np.int32)),
            **{f"past.{name}": past for name, past in zip(self._names, self._past, strict=True)},
        }
        wanted = ["logits" if head else "hidden", *(f"present.{name}" for name in self._names)]
        output, *self._past = self._sessions[head].run_with_ort_values(wanted, feeds)
        return output


def _write_onnx(checkpoint: Path, config: dict[str, Any], scheme: Any, head: bool, path: Path) -> None:
    from rehearsal.bench.peers.onnx_graph import write_onnx

    unfinished = path.with_suffix(".part")
    write_onnx(read_weights(checkpoint), config, scheme, head, unfinished)
    unfinished.replace(path)


class OpenVino:
    """OpenVINO on the graph that its GenAI package makes of a GGUF file; keys and values are the graph's state."""

    note = "weights in Q8_0's blocks, as OpenVINO GenAI reads them from GGUF"

    def __init__(self, checkpoint: Path, threads: int) -> None:
        import openvino

        self._openvino = openvino
        self.name = f"openvino {version('openvino')}"
        folder = checkpoint / "openvino"
        if not (folder / "openvino_model.xml").is_file():
            _write_openvino(checkpoint / "q8_0.gguf", folder)
        settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "ENABLE_CPU_PINNING": False}
        core = openvino.Core()
        self._requests = {
            head: core.compile_model(_cut(openvino, core, folder, head), "CPU", settings).create_infer_request()
            for head in (False, True)
        }
        self.reset()

    def reset(self) -> None:
        self._cached = 0
        for request in self._requests.values():
            request.reset_state()

    def forward(self, tokens: list[int]) -> None:
        self._run(tokens, head=False)

    def logits(self, tokens: list[int]) -> Floats:
        found: Floats = self._run(tokens, head=True).reshape(-1)
        return found

    def _run(self, tokens: list[int], *, head: bool) -> Any:
        first, self._cached = self._cached, self._cached + len(tokens)
        request = self._requests[head]
        request.infer(
            {
                "input_ids": np.array([tokens], np.int64),
                "attention_mask": np.ones((1, self._cached), np.int64),
                "position_ids": np.arange(first, self._cached, dtype=np.int64)[None],
                "beam_idx": np.zeros(1, np.int32),
            },
            share_inputs=True,
        )
        return request.get_output_tensor(0).data


def _write_openvino(gguf: Path, folder: Path) -> None:
    """Let GenAI write the graph beside the GGUF file that it reads."""
    import openvino_genai

    folder.mkdir(exist_ok=True)
    link = folder / "model.gguf"
    link.unlink(missing_ok=True)
    link.hardlink_to(gguf)
    openvino_genai.LLMPipeline(str(link), "CPU", enable_save_ov_model=True)


def _cut(openvino: Any, core: Any, folder: Path, head: bool) -> Any:
    """Return the graph up to the last hidden states, or with `head` to the last row's logits, as GenAI cuts it."""
    from openvino import opset13

    model = core.read_model(folder / "openvino_model.xml")
    product = model.outputs[0].get_node().input(0).get_source_output().get_node()
    hidden = product.input(0).get_source_output()
    if head:
        last = opset13.slice(hidden, *(np.array([bound], np.int64) for bound in (-1, 2**31 - 1, 1, 1)))
        product.input(0).replace_source_output(last.output(0))
        return model
    return openvino.Model([opset13.result(hidden)], model.get_sinks(), model.get_parameters(), "layers")


class CTranslate2:
    """CTranslate2 in int8, which has whole generations and whole forwards but no step over a cache in its interface."""

    note = "its forward by rows has no cached context (its interface has none); its plans are decoded without a grammar"

    def __init__(self, checkpoint: Path, threads: int) -> None:
        import ctranslate2

        self.name = f"ctranslate2 {ctranslate2.__version__}"
        self._config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        self._tokens = token_names(checkpoint, self._config)
        self._generators = {}
        for head in (False, True):
            folder = checkpoint / f"ctranslate2{'-head' if head else ''}"
            if not (folder / "model.bin").is_file():
                self._write(checkpoint, folder, head)
            self._generators[head] = ctranslate2.Generator(
                str(folder), device="cpu", compute_type="int8", intra_threads=threads, inter_threads=1
            )

    def reset(self) -> None:
        """Do nothing, as there is no cache."""

    def forward(self, tokens: list[int]) -> None:
        names = [self._tokens[token % _FEW_TOKENS] for token in tokens]
        np.array(self._generators[False].forward_batch([names]))

    def logits(self, tokens: list[int]) -> Floats:
        names = [self._tokens[token] for token in tokens]
        found: Floats = np.array(self._generators[True].forward_batch([names]))[0, -1]
        return found

    def generate(self, prompt: list[int], max_tokens: int) -> list[int]:
        """Decode greedily up to the end token, without a grammar."""
        (result,) = self._generators[True].generate_batch(
            [[self._tokens[token] for token in prompt]],
            max_length=max_tokens,
            sampling_topk=1,
            include_prompt_in_result=False,
            end_token=self._tokens[self._config["eos_token_id"]],
        )
        found: list[int] = result.sequences_ids[0]
        return found

    def _write(self, checkpoint: Path, folder: Path, head: bool) -> None:
        """Write the model; without a head, the vocabulary is cut, because the interface always computes logits."""
        weights = read_weights(checkpoint)
        tokens = self._tokens
        if not head:
            tokens = tokens[:_FEW_TOKENS]
            weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"][:_FEW_TOKENS]
            if "lm_head.weight" in weights:
                weights["lm_head.weight"] = weights["lm_head.weight"][:_FEW_TOKENS]
        write_ctranslate2(weights, self._config, tokens, folder)


def write_ctranslate2(weights: dict[str, Floats], config: dict[str, Any], tokens: list[str], folder: Path) -> None:
    """Write Hugging Face weights as a CTranslate2 int8 model, laid out as by its own Llama converter."""
    from ctranslate2 import specs

    layers = config["num_hidden_layers"]
    spec = specs.TransformerDecoderModelSpec.from_config(
        layers,
        config["num_attention_heads"],
        activation=specs.Activation.SWISH,
        pre_norm=True,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,
        rotary_interleave=False,
        rotary_base=config["rope_theta"],
        num_heads_kv=config["num_key_value_heads"],
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = weights["model.embed_tokens.weight"]
    decoder.projection.weight = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    decoder.layer_norm.gamma = weights["model.norm.weight"]
    for index, layer in enumerate(decoder.layer):
        at = f"model.layers.{index}"
        layer.self_attention.layer_norm.gamma = weights[f"{at}.input_layernorm.weight"]
        layer.self_attention.linear[0].weight = np.concatenate(
            [weights[f"{at}.self_attn.{part}_proj.weight"] for part in "qkv"]
        )
        layer.self_attention.linear[1].weight = weights[f"{at}.self_attn.o_proj.weight"]
        layer.ffn.layer_norm.gamma = weights[f"{at}.post_attention_layernorm.weight"]
        layer.ffn.linear_0.weight = weights[f"{at}.mlp.gate_proj.weight"]
        layer.ffn.linear_0_noact.weight = weights[f"{at}.mlp.up_proj.weight"]
        layer.ffn.linear_1.weight = weights[f"{at}.mlp.down_proj.weight"]
    spec.config.layer_norm_epsilon = config["rms_norm_eps"]
    spec.config.bos_token, spec.config.eos_token = tokens[config["bos_token_id"]], tokens[config["eos_token_id"]]
    spec.config.unk_token = tokens[0]
    spec.register_vocabulary(tokens)
    spec.validate()
    spec.optimize(quantization="int8")
    folder.mkdir(exist_ok=True)
    spec.save(str(folder))
