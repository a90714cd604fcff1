#!/usr/bin/env python3
"""Changes the source on purpose, one slip at a time, and asks the tests whether they notice.

    tools/mutate.py [WORD...]                    the committed mutants (tests/mutants/*.txt), or those whose name, file or list has one of the words
    tools/mutate.py --check                      only that each still has its place in the source; no building, no running
    tools/mutate.py --propose N [--seed S] FILE...   N random mutants of these files instead; those that survive are printed as the lists want them
    --accepted      also runs those that a reason lets survive        --print     proposes without running
    --list FILE     another list (repeatable)                         --folder F  the scratch copy, build-mutants by default
    --tests FILE    another tests/mutants/tests.txt                   --jobs N    of ninja, 2 by default
    --limit S       a test program's time limit: S seconds and five times what it took without a mutant; 20 by default

Everything happens in a copy of the tree. For each mutant the copy is changed, the test programs that can see the file (tests.txt) are built one after the
other and run until one fails. The golden comparison of tests/test_generate.c is left out: it notices every change of the PTX, the intended ones included.

A list:

    file runtime/launch.c
    mutant a child of fork may launch       the slip, in words; unique
    at   foscar_status launch_enter(        optional: the place is the first one behind this text
    -    kernel->owner != getpid()          the text that is changed; without `at` there must be one such place. Blanks stand for any white space
    +    false                              what takes its place; without it: nothing
    why  the reason why it may survive      optional

A mutant is killed (by which test), survives, or hangs (which counts as killed). Exit codes: 1 if one without a reason survives, does not compile or has no
place in the source any more (proposals that do not compile are only counted), 2 for wrong usage. Mutation tools of PyPI and of LLVM (universalmutator,
mull) make mutants and throw them away; what is wanted here is a list that is kept, with names and reasons, in places found by their text, over C, CUDA and
generated code alike. What is left of such a tool, random operators on a line of C, is in mutate_propose.py.
"""
import argparse
import fnmatch
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

from mutate_propose import propose

ROOT = pathlib.Path(__file__).resolve().parent.parent
MEMORY, FILE_BYTES = 16 << 30, 1 << 30  # that a test program may take: a loop that a mutant made endless must not take the machine
KILLED, SURVIVED, NOT_COMPILED, LOST, ACCEPTED = "killed", "SURVIVED", "does not compile", "has no place", "accepted"


class Trouble(Exception):
    """What ends the script: its message is all there is to say."""


# ---- Lists ----


@dataclass
class Mutant:
    name: str
    file: str
    list: str
    at: str = ""
    old: str = ""
    new: str = ""
    why: str = ""

    def text(self):
        """As a list has it, without the line `file`."""
        lines = [f"mutant {self.name}"] + ([f"at   {self.at}"] if self.at else [])
        lines += [f"-    {line}" for line in self.old.splitlines()] + [f"+    {line}" for line in self.new.splitlines()]
        return "\n".join(lines)


def read_list(path):
    mutants, file, added = [], None, {"at": " ", "-": "\n", "+": "\n", "why": " "}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        word, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if not word or word.startswith("#"):
            continue
        if word == "file":
            file = rest
        elif word == "mutant" and file and rest:
            mutants.append(Mutant(rest, file, path.stem))
        elif word in added and mutants and mutants[-1].file == file:
            name = {"-": "old", "+": "new"}.get(word, word)
            before = getattr(mutants[-1], name)
            setattr(mutants[-1], name, before + added[word] + rest if before else rest)
        else:
            raise Trouble(f"{path}:{number}: no line of a list: {line.strip()}")
    return mutants


def read_lists(paths):
    mutants = [mutant for path in paths for mutant in read_list(path)]
    names = set()
    for mutant in mutants:
        if not mutant.old or mutant.name in names:
            raise Trouble(f"mutant '{mutant.name}' of {mutant.list}: " + ("its name is not unique" if mutant.old else "it changes no text"))
        names.add(mutant.name)
    return mutants


def places(text, wanted, begin=0):
    """Begins and ends of a text whose blanks stand for any white space."""
    pattern = re.compile(r"\s+".join(re.escape(word) for word in wanted.split()))
    return [(found.start(), found.end()) for found in pattern.finditer(text, begin)]


def mutate(mutant, text):
    """The mutated text; Trouble says why there is no place for it."""
    begin = 0
    if mutant.at:
        found = places(text, mutant.at)
        if len(found) != 1:
            raise Trouble(f"'{mutant.at}' is there {len(found)} times, not once" if found else f"'{mutant.at}' is not there any more")
        begin = found[0][1]
    found = places(text, mutant.old, begin)
    if not found or (len(found) > 1 and not mutant.at):
        raise Trouble(f"'{mutant.old}' is there {len(found)} times, not once" if found else f"'{mutant.old}' is not there any more")
    return text[: found[0][0]] + mutant.new + text[found[0][1] :]


# ---- The scratch copy ----


def git_files():
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True)
    return [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def write_if_other(path, data):
    """Keeps the time of a file that is as it should be, so that ninja builds nothing anew."""
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def copy_tree(tree):
    names = set(git_files())
    for name in names:
        write_if_other(tree / name, (ROOT / name).read_bytes())
        shutil.copymode(ROOT / name, tree / name)
    for path in sorted(tree.rglob("*"), reverse=True):
        if path.is_file() and not path.is_symlink() and str(path.relative_to(tree)) not in names:
            path.unlink()
    if (ROOT / ".deps").exists() and not (tree / ".deps").exists():
        (tree / ".deps").symlink_to(ROOT / ".deps")


@dataclass
class Program:
    """A test program and what is known of it."""

    name: str
    command: list
    environment: dict
    targets: list  # of ninja
    seconds: float = 0.0  # without a mutant


@dataclass
class Scratch:
    tree: pathlib.Path
    build: pathlib.Path
    jobs: int
    limit: float
    environment: dict = field(default_factory=dict)
    programs: dict = field(default_factory=dict)

    def prepare(self):
        copy_tree(self.tree)
        if not (self.build / "build.ninja").exists():
            run_or_fail(["meson", "setup", str(self.build), str(self.tree), "-Dtests=enabled"], self.tree)
        self.make([])  # build files anew where they have changed
        targets = {t["id"]: t["filename"][0] for t in self.introspect("--targets")}
        for test in self.introspect("--tests"):
            depends = [os.path.relpath(targets[d], self.build) for d in test["depends"]]
            self.programs[test["name"]] = Program(test["name"], test["cmd"], test["env"], depends)

    def introspect(self, what):
        return json.loads(run_or_fail(["meson", "introspect", str(self.build), what], self.tree))

    def make(self, targets):
        """What the compiler says against it; empty: it is built."""
        if targets == []:
            targets = ["build.ninja"]
        done = subprocess.run(["ninja", "-C", str(self.build), f"-j{self.jobs}", *targets], capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def run(self, program):
        """What went wrong, in a few words, or None."""
        environment = {**os.environ, **program.environment, **self.environment}
        begin = time.monotonic()
        limit = self.limit + 5 * program.seconds
        child = subprocess.Popen(program.command, cwd=self.tree, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=limit_child)
        try:
            output = child.communicate(timeout=limit)[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            output = None
        end_session(child)
        self.last_seconds = time.monotonic() - begin
        if output is None:
            return f"hangs ({limit:.0f} s)"
        if child.returncode == 0:
            return None
        cases = sorted(set(re.findall(r"^\[  FAILED  \] ([A-Za-z_0-9]+)$", output, re.M)))
        if cases:
            return ", ".join(cases[:3]) + (f" and {len(cases) - 3} more" if len(cases) > 3 else "")
        return f"signal {-child.returncode}" if child.returncode < 0 else f"exit code {child.returncode}"


def limit_child():
    for what, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, FILE_BYTES), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard < 0 else min(most, hard),) * 2)


def end_session(child):
    """Ends the child and whatever it started that is still there; each leads or is of its session."""
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            session = int(entry.read_text().rpartition(")")[2].split()[3])
            if session == child.pid:
                os.kill(int(entry.parent.name), signal.SIGKILL)
        except (OSError, ValueError, IndexError):
            continue
    if child.poll() is None:
        child.kill()
    child.communicate()


def run_or_fail(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Trouble(f"{' '.join(command)} fails:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


# ---- Which tests see a file ----


@dataclass
class Sight:
    rows: list  # (pattern, names of test programs)
    environment: dict

    def tests(self, file):
        for pattern, names in self.rows:
            if fnmatch.fnmatch(file, pattern):
                return names
        raise Trouble(f"no line says which tests see {file}")


def read_sight(path):
    rows, environment = [], {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if words[0] == "set" and len(words) == 3:
            environment[words[1]] = words[2]
        elif words[0] != "set" and len(words) > 1:
            rows.append((words[0], words[1:]))
        else:
            raise Trouble(f"{path}:{number}: neither PATTERN TEST... nor set VARIABLE VALUE: {line.strip()}")
    return Sight(rows, environment)


# ---- Runs ----


def measure(scratch, names):
    """All test programs without a mutant: they pass, and take so long."""
    for name in names:
        if name not in scratch.programs:
            raise Trouble(f"there is no test program {name}")
        program = scratch.programs[name]
        said = scratch.make(program.targets)
        if said:
            raise Trouble(f"{name} is not built without a mutant:\n{said[-3000:]}")
        program.seconds = 60.0
        problem = scratch.run(program)
        if problem:
            raise Trouble(f"{name} fails without a mutant: {problem}")
        program.seconds = scratch.last_seconds


def try_mutant(scratch, mutant, names):
    """(outcome, by what or why)"""
    path = scratch.tree / mutant.file
    original = (ROOT / mutant.file).read_text(encoding="utf-8")
    try:
        path.write_text(mutate(mutant, original), encoding="utf-8")
    except Trouble as trouble:
        return LOST, str(trouble)
    try:
        for name in names:
            said = scratch.make(scratch.programs[name].targets)
            if said:
                errors = [line.strip() for line in said.splitlines() if "error" in line]
                return NOT_COMPILED, errors[0] if errors else said.strip().splitlines()[-1]
            problem = scratch.run(scratch.programs[name])
            if problem:
                return KILLED, f"{name}: {problem}"
        return SURVIVED, ""
    finally:
        path.write_text(original, encoding="utf-8")


def run_all(scratch, sight, mutants, accepted, proposed):
    counts, bad = {}, 0
    names = {mutant.file: sight.tests(mutant.file) for mutant in mutants}
    wanted = {mutant.file for mutant in mutants if accepted or not mutant.why}
    scratch.environment = sight.environment
    scratch.prepare()
    measure(scratch, list(dict.fromkeys(name for file in names if file in wanted for name in names[file])))
    for number, mutant in enumerate(mutants, 1):
        begin = time.monotonic()
        if mutant.why and not accepted:
            outcome, detail = look_at(mutant)
        else:
            outcome, detail = try_mutant(scratch, mutant, names[mutant.file])
        if mutant.why and outcome == SURVIVED:
            outcome, detail = ACCEPTED, mutant.why
        elif mutant.why and outcome == KILLED:
            detail += " -- and its reason says that it survives"
        folder = mutant.file.split("/")[0]
        counts.setdefault(folder, {}).setdefault(outcome, 0)
        counts[folder][outcome] += 1
        bad += outcome in (SURVIVED, LOST) or (outcome == NOT_COMPILED and not proposed)
        print(f"{number}/{len(mutants)} {outcome:8} {mutant.file}: {mutant.name} [{time.monotonic() - begin:.0f} s]" + (f"\n    {detail}" if detail else ""), flush=True)
        if proposed and outcome == SURVIVED:
            print(f"\nfile {mutant.file}\n{mutant.text()}\n", flush=True)
    report(counts)
    return 1 if bad else 0


def look_at(mutant):
    """Of one that is not run: whether there is a place for it."""
    try:
        mutate(mutant, (ROOT / mutant.file).read_text(encoding="utf-8"))
        return ACCEPTED, mutant.why
    except (Trouble, OSError) as trouble:
        return LOST, str(trouble)


def report(counts):
    total = {}
    for folder in sorted(counts):
        print(f"{folder + '/':14}" + ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts[folder].items())))
        for outcome, n in counts[folder].items():
            total[outcome] = total.get(outcome, 0) + n
    print(f"{sum(total.values())} mutants: " + ", ".join(f"{n} {outcome}" for outcome, n in sorted(total.items())))


def check(mutants):
    lost = 0
    for mutant in mutants:
        outcome, detail = look_at(mutant)
        if outcome == LOST:
            lost += 1
            print(f"{mutant.list}: {mutant.file}: {mutant.name}: {detail}; change the mutant or delete it")
    print(f"{len(mutants)} mutants, {lost} without a place")
    return 1 if lost else 0


def proposals(files, count, seed):
    made = []
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in files}
    for file, words, at, old, new in propose(texts, count, seed):
        mutant = Mutant(words, file, "proposed", at, old, new)
        mutate(mutant, texts[file])  # its place is unique
        made.append(mutant)
    return made


def parse(arguments):
    parser = argparse.ArgumentParser(description="Mutation runs; the head of this file says all.")
    parser.add_argument("words", nargs="*", metavar="WORD|FILE")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--accepted", action="store_true")
    parser.add_argument("--print", action="store_true")
    parser.add_argument("--propose", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="append", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--tests", type=pathlib.Path, default=ROOT / "tests/mutants/tests.txt", metavar="FILE")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build-mutants")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=20)
    options = parser.parse_args(arguments)
    if options.propose is not None and not options.words:
        parser.error("--propose wants FILE...")
    return options


def select(options):
    if options.propose is not None:
        return proposals([str(pathlib.Path(file).resolve().relative_to(ROOT)) for file in options.words], options.propose, options.seed)
    lists = options.list or sorted(path for path in (ROOT / "tests/mutants").glob("*.txt") if path.name != "tests.txt")
    mutants = read_lists(lists)
    words = options.words
    return [m for m in mutants if not words or any(word in f"{m.list} {m.file} {m.name}" for word in words)]


def main(arguments):
    options = parse(arguments)
    mutants = select(options)
    if options.check:
        return check(mutants)
    if options.print:
        print("\n\n".join(f"file {m.file}\n{m.text()}" for m in mutants))
        return 0
    folder = options.folder.resolve()
    scratch = Scratch(folder / "tree", folder / "build", options.jobs, options.limit)
    return run_all(scratch, read_sight(options.tests), mutants, options.accepted, options.propose is not None)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Trouble as trouble:
        sys.exit(f"mutate: {trouble}")
    except KeyboardInterrupt:
        sys.exit(130)
