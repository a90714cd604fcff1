"""Random mutants of C and CUDA: one operator, number, condition or statement of one line, as a slip of the hand would leave it."""
import random
import re

OPERATORS = {
    "<": ["<="], "<=": ["<"], ">": [">="], ">=": [">"], "==": ["!="], "!=": ["=="], "&&": ["||"], "||": ["&&"], "+": ["-"], "-": ["+"],
    "*": ["/"], "/": ["*"], "%": ["/"], "<<": [">>"], ">>": ["<<"], "&": ["|"], "|": ["&"], "^": ["|"], "++": ["--"], "+=": ["-="], "-=": ["+="],
    "|=": ["="], "&=": ["="], "*=": ["="],
}
WORDS = {"true": "false", "false": "true", "break": "continue", "continue": "break"}
# Binary operators stand between blanks in this source; & and * without them are addresses.
OPERATOR = re.compile(r"(?<= )(?:" + "|".join(re.escape(o) for o in sorted(OPERATORS, key=len, reverse=True)) + r")(?= )|\+\+")
NUMBER = re.compile(r"(?<![\w.])(?:0x[0-9a-fA-F]+|\d+)(?![\w.])")
CONDITION = re.compile(r"\bif \((.*)\)(?= |$)")
STATEMENT = re.compile(r"^\s+[\w>.\-\[\]*()]+(?: [-+|&]?= |\().*;\s*$|^\s+(?:break|continue);\s*$")
TWINS = re.compile(r"\b(?:[kK]_\w+|[vV]_\w+|\w+_[kKvV])\b")
FUNCTION = re.compile(r"^[A-Za-z_].*\(")


def blanked(text):
    """The text with comments, strings and lines of the preprocessor blanked out, character by character."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', re.S | re.M)
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def twin(name):
    """k_stage for v_stage, SHARED_RING_V for SHARED_RING_K."""
    swap = str.maketrans("kKvV", "vVkK")
    return name[:1].translate(swap) + name[1:] if name[1:2] == "_" else name[:-1] + name[-1:].translate(swap)


def changes(line, names):
    """(begin, end, replacement, words) of everything that can be changed in a blanked line."""
    found = []
    for m in OPERATOR.finditer(line):
        found += [(m.start(), m.end(), new, f"{m.group()} becomes {new}") for new in OPERATORS[m.group()]]
    for m in NUMBER.finditer(line):
        value = int(m.group(), 0)
        for new in {value + 1, max(value - 1, 0), value * 2} - {value}:
            found.append((m.start(), m.end(), hex(new) if m.group().startswith("0x") else str(new), f"{m.group()} becomes {new}"))
    for m in re.finditer(r"\b(?:true|false|break|continue)\b", line):
        found.append((m.start(), m.end(), WORDS[m.group()], f"{m.group()} becomes {WORDS[m.group()]}"))
    for m in CONDITION.finditer(line):
        if m.group(1).count("(") == m.group(1).count(")"):
            found.append((m.start(1), m.end(1), f"!({m.group(1)})", "a condition is turned round"))
    for m in TWINS.finditer(line):
        if twin(m.group()) in names:
            found.append((m.start(), m.end(), twin(m.group()), f"{m.group()} becomes {twin(m.group())}"))
    if STATEMENT.match(line) and not line.strip().startswith("return"):
        begin = len(line) - len(line.lstrip())
        found.append((begin, len(line.rstrip()), ";", "a statement is gone"))
    return found


def sites(file, text):
    lines, hidden, function = text.split("\n"), blanked(text).split("\n"), ""
    names = set(re.findall(r"\w+", text))
    for number, (line, bare) in enumerate(zip(lines, hidden), 1):
        if FUNCTION.match(line) and not line.rstrip().endswith(";"):
            function = line.strip()
        for begin, end, new, words in changes(bare, names):
            yield file, number, line, function, begin, end, new, words


def anchor(text, line, function):
    """What makes the line's place unique: nothing, or the head of its function; None if neither does."""
    flat = " ".join(text.split())
    wanted = " ".join(line.split())
    if flat.count(wanted) == 1:
        return ""
    head = " ".join(function.split())
    if head and flat.count(head) == 1 and flat.find(wanted, flat.find(head)) >= 0:
        behind = text[text.find(function) :]
        end = behind.find("\n}")
        if " ".join(behind[:end].split()).count(wanted) == 1:
            return head
    return None


def propose(texts, count, seed):
    """`count` random mutants of files {name: text}, each file equally likely: (file, words, at, old, new)."""
    rng = random.Random(seed)
    pool = {file: list(sites(file, text)) for file, text in texts.items()}
    made, seen = [], set()
    for _ in range(count * 50):
        file = rng.choice(sorted(pool))
        if len(made) == count or not pool[file]:
            break
        name, number, line, function, begin, end, new, words = rng.choice(pool[file])
        at = anchor(texts[file], line, function)
        if at is None or (number, begin, new) in seen:
            continue
        seen.add((number, begin, new))
        changed = line[:begin] + new + line[end:]
        made.append((name, f"{name} line {number}: {words}", at, line.strip(), changed.strip()))
    return made
