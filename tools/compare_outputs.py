#!/usr/bin/env python3
"""Compares what two devices made of the same problems: pairs of files written by `foscar run --output`.

    tools/compare_outputs.py FOLDER_A FOLDER_B

For every file of FOLDER_A that FOLDER_B has too: whether the pages are the same bit for bit (they hold integers and scales that both devices must
round alike), the share of outputs with the same bits, the largest difference of an output in units of its row's largest magnitude, and that of the
log-sum-exp, relative to 1 + |lse|. Last line: the worst of all. Exit codes: 0 all pages are the same and no difference exceeds the limit, 1 otherwise.
"""
import json
import pathlib
import struct
import sys

import numpy as np

# Both run the same instructions in the same order, but ex2, lg2 and rcp.approx may err by 2^-22 on a GPU (PTX ISA), and a unit of P' turns now and then.
# A quarter of the bound against float64.
LIMIT = 5e-6


def tensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    types = {"F32": np.float32, "U8": np.uint8}
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            found[name] = np.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return found


def compare(a, b):
    same_pages = np.array_equal(a["pages"], b["pages"])
    same_bits = float(np.mean(a["out"].view(np.uint32) == b["out"].view(np.uint32)))
    size = np.maximum(np.abs(a["out"]).max(axis=-1, keepdims=True), 1e-30)
    out = float((np.abs(a["out"].astype(np.float64) - b["out"]) / size).max())
    finite = np.isfinite(a["lse"])
    same_empty = np.array_equal(a["lse"][~finite], b["lse"][~finite])
    left, right = a["lse"][finite].astype(np.float64), b["lse"][finite]
    lse = float((np.abs(left - right) / (1 + np.abs(left))).max(initial=0))
    return same_pages and same_empty, same_bits, out, lse


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    left, right = map(pathlib.Path, sys.argv[1:])
    rows = [(f.stem, *compare(tensors(f), tensors(right / f.name))) for f in sorted(left.iterdir()) if (right / f.name).exists()]
    for name, same, bits, out, lse in rows:
        print(f"{name:52s} pages {'same' if same else 'DIFFER':6s}  equal outputs {bits:6.4f}  difference {out:.2e}  lse {lse:.2e}")
    if not rows:
        sys.exit("compare_outputs: the folders have no file in common")
    good = all(r[1] for r in rows) and max(r[3] for r in rows) <= LIMIT and max(r[4] for r in rows) <= LIMIT
    print(f"{len(rows)} pairs: pages {'the same' if all(r[1] for r in rows) else 'differ'}, at least {min(r[2] for r in rows):.3f} of the outputs equal, "
          f"largest difference {max(r[3] for r in rows):.2e}, of the lse {max(r[4] for r in rows):.2e}")
    sys.exit(0 if good else 1)


main()
