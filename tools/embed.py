#!/usr/bin/env python3
"""Embed text files, one after the other, as one C string.

    embed.py IN... OUT.c SYMBOL

OUT.c then defines `const char SYMBOL[]`, NUL-terminated. The output depends on nothing but the contents of the files.
"""
import sys


def literal(line):
    """A C string literal of one line of text, its newline included. Octal escapes: they end after three digits."""
    out = []
    for byte in line:
        if byte == 0x0A:
            out.append("\\n")
        elif 0x20 <= byte < 0x7F and byte not in b'"\\?':
            out.append(chr(byte))
        else:
            out.append("\\%03o" % byte)
    return '"' + "".join(out) + '"'


def main(arguments):
    if len(arguments) < 3:
        sys.exit("usage: embed.py IN... OUT.c SYMBOL")
    *inputs, output, symbol = arguments
    text = b""
    for path in inputs:
        with open(path, "rb") as file:
            text += file.read()
    names = ", ".join(path.replace("\\", "/").rsplit("/", 1)[-1] for path in inputs)
    with open(output, "w", encoding="ascii", newline="\n") as file:
        file.write(f"/* Made by embed.py from {names}. */\n")
        # C compilers need only take 4095 bytes; gcc and clang take any number, and warn.
        file.write('#pragma GCC diagnostic ignored "-Woverlength-strings"\n')
        file.write(f"extern const char {symbol}[];\n")
        file.write(f"const char {symbol}[] =\n")
        for line in text.splitlines(keepends=True):
            file.write(f"    {literal(line)}\n")
        file.write("    ;\n")


if __name__ == "__main__":
    main(sys.argv[1:])
