"""A Llama as an ONNX graph of ONNX Runtime's own operators, as onnxruntime-genai's model builder lays one out.

Attention is GroupQueryAttention over one packed product; norms are fused with the sums before them. Matrices are either
`blocks`: MatMulNBits, 8 bits, a scale for each 32 inputs, activations quantised alike (accuracy level 4); or
`dynamic`: DynamicQuantizeMatMul, a scale an output channel and one for the whole of an activation, which makes a row
depend on what is read beside it. https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Scheme = Literal["blocks", "dynamic"]
Floats = NDArray[np.float32]
_CONTRIB = "com.microsoft"
_BLOCK = 32  # inputs that share a scale; the builder's default
_OPSET = 21


def write_onnx(weights: dict[str, Floats], config: dict[str, Any], scheme: Scheme, head: bool, path: Path) -> None:
    """Write Hugging Face weights; the output is `hidden` [1, N, H], or with `head` the last row's `logits` [V]."""
    _Graph(weights, config, scheme).save(head, path)


class _Graph:
    def __init__(self, weights: dict[str, Floats], config: dict[str, Any], scheme: Scheme) -> None:
        self._weights, self._config, self._scheme = weights, config, scheme
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._heads, self._kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self._head_dim = config.get("head_dim") or config["hidden_size"] // self._heads

    def save(self, head: bool, path: Path) -> None:
        config, layers = self._config, range(self._config["num_hidden_layers"])
        self._add_rotary()
        embedding = self._constant("embedding", self._weights["model.embed_tokens.weight"])
        (residual,) = self._node("Gather", [embedding, "tokens"], ["embedded"])
        norm = self._constant("norm.first", self._weights["model.layers.0.input_layernorm.weight"])
        (normal,) = self._node(
            "SimplifiedLayerNormalization", [residual, norm], ["normal.first"], epsilon=config["rms_norm_eps"], axis=-1
        )
        for index in layers:
            normal, residual = self._layer(index, normal, residual)
        output = helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [1, "rows", config["hidden_size"]])
        self._node("Identity", [normal], ["hidden"])
        if head:
            last = self._constant("last", np.array(-1, np.int64))
            (row,) = self._node("Gather", ["hidden", last], ["last_row"], axis=1)
            tied = self._weights["model.embed_tokens.weight"]
            self._matrix("logits", self._weights.get("lm_head.weight", tied), row)
            output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, config["vocab_size"]])
        shape = [1, self._kv_heads, "past", self._head_dim]
        pasts = [f"past.{index}.{part}" for index in layers for part in ("key", "value")]
        inputs = [
            helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, "rows"]),
            helper.make_tensor_value_info("last_position", TensorProto.INT32, [1]),
            helper.make_tensor_value_info("total", TensorProto.INT32, []),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in pasts),
        ]
        shape[2] = "present"
        presents = [
            helper.make_tensor_value_info(name.replace("past", "present"), TensorProto.FLOAT, shape) for name in pasts
        ]
        graph = helper.make_graph(self._nodes, "llama", inputs, [output, *presents], self._constants)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)

    def _layer(self, index: int, normal: str, residual: str) -> tuple[str, str]:
        """Add a layer; return the normalised input of the next one, and the residual sum behind it."""
        at, weight = f"layer.{index}", f"model.layers.{index}"
        parts = [self._weights[f"{weight}.self_attn.{part}_proj.weight"] for part in "qkv"]
        packed = self._matrix(f"{at}.qkv", np.concatenate(parts), normal)
        attended, *_ = self._node(
            "GroupQueryAttention",
            [packed, "", "", f"past.{index}.key", f"past.{index}.value", "last_position", "total", "cos", "sin"],
            [f"{at}.attended", f"present.{index}.key", f"present.{index}.value"],
            domain=_CONTRIB,
            num_heads=self._heads,
            kv_num_heads=self._kv_heads,
            do_rotary=1,
        )
        projected = self._matrix(f"{at}.output", self._weights[f"{weight}.self_attn.o_proj.weight"], attended)
        normal, residual = self._add_and_norm(f"{at}.mlp", residual, projected, f"{weight}.post_attention_layernorm")
        gate = self._matrix(f"{at}.gate", self._weights[f"{weight}.mlp.gate_proj.weight"], normal)
        up = self._matrix(f"{at}.up", self._weights[f"{weight}.mlp.up_proj.weight"], normal)
        (open_,) = self._node("Sigmoid", [gate], [f"{at}.sigmoid"])
        (active,) = self._node("Mul", [gate, open_], [f"{at}.active"])
        (inner,) = self._node("Mul", [active, up], [f"{at}.inner"])
        down = self._matrix(f"{at}.down", self._weights[f"{weight}.mlp.down_proj.weight"], inner)
        following = f"model.layers.{index + 1}.input_layernorm"
        is_last = index + 1 == self._config["num_hidden_layers"]
        return self._add_and_norm(f"{at}.next", residual, down, "model.norm" if is_last else following)

    def _add_and_norm(self, name: str, residual: str, added: str, norm: str) -> tuple[str, str]:
        gamma = self._constant(f"{name}.norm", self._weights[f"{norm}.weight"])
        normal, _, _, total = self._node(
            "SkipSimplifiedLayerNormalization",
            [residual, added, gamma],
            [f"{name}.normal", "", "", f"{name}.sum"],
            domain=_CONTRIB,
            epsilon=self._config["rms_norm_eps"],
        )
        return normal, total

    def _matrix(self, name: str, weight: Floats, x: str) -> str:
        """Multiply x [.., K] by weight [N, K] transposed."""
        if self._scheme == "blocks":
            return self._blocks(name, weight, x)
        scales = np.maximum(np.abs(weight).max(axis=1), 1e-12) / 127
        integers = np.rint(weight / scales[:, None]).astype(np.int8).T
        constants = [
            self._constant(f"{name}.integers", np.ascontiguousarray(integers)),
            self._constant(f"{name}.scales", scales.astype(np.float32)),
            self._constant(f"{name}.zeros", np.zeros(len(scales), np.int8)),
        ]
        return self._node("DynamicQuantizeMatMul", [x, *constants], [name], domain=_CONTRIB)[0]

    def _blocks(self, name: str, weight: Floats, x: str) -> str:
        outputs, inputs = weight.shape
        grouped = weight.reshape(outputs, inputs // _BLOCK, _BLOCK)
        scales = np.maximum(np.abs(grouped).max(axis=2), 1e-12) / 127
        integers = (np.rint(grouped / scales[:, :, None]) + 128).astype(np.uint8)  # around the default zero point
        constants = [
            self._constant(f"{name}.integers", integers),
            self._constant(f"{name}.scales", scales.astype(np.float32)),
        ]
        return self._node(
            "MatMulNBits",
            [x, *constants],
            [name],
            domain=_CONTRIB,
            K=inputs,
            N=outputs,
            bits=8,
            block_size=_BLOCK,
            accuracy_level=4,
        )[0]

    def _add_rotary(self) -> None:
        half = self._head_dim // 2
        frequencies = self._config["rope_theta"] ** -(np.arange(half) / half)
        angles = np.outer(np.arange(min(self._config["max_position_embeddings"], 2048)), frequencies)
        self._constant("cos", np.cos(angles).astype(np.float32))
        self._constant("sin", np.sin(angles).astype(np.float32))

    def _constant(self, name: str, values: NDArray[Any]) -> str:
        self._constants.append(numpy_helper.from_array(values, name))
        return name

    def _node(self, kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> list[str]:
        self._nodes.append(helper.make_node(kind, inputs, outputs, name=outputs[0], **attributes))
        return outputs
