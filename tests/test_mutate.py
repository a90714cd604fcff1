#!/usr/bin/env python3
"""tools/mutate.py on a project of one function: each outcome is told as what it is."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

TOOLS = pathlib.Path(__file__).resolve().parent.parent / "tools"

PROJECT = {
    "meson.build": """project('tiny', 'c')
test('quick', executable('quick', 'src/sum.c', 'quick.c'))
test('slow', executable('slow', 'src/sum.c', 'slow.c'))
""",
    "meson_options.txt": "option('tests', type: 'feature', value: 'auto')\n",
    "src/sum.h": "int sum_below(int n);\n",
    "src/sum.c": """#include "sum.h"

/* 0 + 1 + ... + (n - 1) */
int sum_below(int n)
{
    int sum = 0, i = 0;
    while (i < n) {
        sum += i;
        i++;
    }
    if (n < 0) return 0;
    return sum;
}
""",
    "quick.c": '#include "src/sum.h"\nint main(void) { return sum_below(2) == 1 ? 0 : 1; }\n',
    "slow.c": '#include <stdio.h>\n#include "src/sum.h"\nint main(void)\n{\n    if (sum_below(4) == 6) return 0;\n'
    '    puts("[  FAILED  ] sums_are_right");\n    return 1;\n}\n',
    "tests/mutants/tests.txt": "src/*.c quick slow # in this order\n",
    "tests/mutants/good.txt": """# comments and empty lines are nothing
file src/sum.c

mutant it begins at 1
-    int sum = 0,   i = 0;
+    int sum = 1, i = 0;

mutant a difference that only the second test sees
at   while (i < n)
-    sum += i;
+    sum += i % 3;

mutant it counts for ever
-    i++;

mutant a negative number takes the long way
-    if (n < 0) return 0;
why  the loop does nothing
""",
    "tests/mutants/bad.txt": """file src/sum.c
mutant it survives
-    if (n < 0) return 0;
mutant it is no C
-    return sum;
+    return sum
mutant it is gone
-    return total;
mutant it is there twice
-    i
""",
}

failures = 0


def expect(condition, what, text):
    global failures
    if not condition:
        failures += 1
        print(f"not so: {what}\n{text}")


def run(root, *arguments):
    done = subprocess.run([sys.executable, str(root / "tools/mutate.py"), *arguments], capture_output=True, text=True, check=False, cwd=root)
    return done.returncode, done.stdout + done.stderr


def main():
    if shutil.which("git") is None:
        sys.exit(77)  # meson: skipped
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        for name, text in PROJECT.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        (root / "tools").mkdir()
        for tool in ("mutate.py", "mutate_propose.py"):
            shutil.copy(TOOLS / tool, root / "tools" / tool)
        (root / ".gitignore").write_text("/build*/\n__pycache__/\n", encoding="utf-8")
        subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
        before = (root / "src/sum.c").read_text(encoding="utf-8")

        code, text = run(root, "--list", "tests/mutants/good.txt", "--limit", "3")
        expect(code == 0, "killed and accepted mutants are success", text)
        expect("it begins at 1" in text and "quick: exit code 1" in text, "the first test kills", text)
        expect("slow: sums_are_right" in text, "the second test kills, by its case", text)
        expect("it counts for ever" in text and "quick: hangs" in text, "a hang is a kill", text)
        expect("the loop does nothing" in text, "a reason is told", text)
        expect("4 mutants: 1 accepted, 3 killed" in text, "they are counted", text)

        code, text = run(root, "--list", "tests/mutants/good.txt", "--accepted", "long way")
        expect(code == 0 and "1 mutants: 1 accepted" in text, "an accepted one is run on demand, and chosen by a word", text)

        code, text = run(root, "--list", "tests/mutants/bad.txt")
        expect(code == 1, "a survivor is a failure", text)
        expect("4 mutants: 1 SURVIVED, 1 does not compile, 2 has no place" in text, "each has its outcome", text)
        expect("'return total;' is not there any more" in text and "'i' is there" in text, "it is told why there is no place", text)
        code, text = run(root, "--list", "tests/mutants/bad.txt", "--check")
        expect(code == 1 and "4 mutants, 2 without a place" in text, "places are checked without running", text)

        code, text = run(root, "--propose", "5", "--seed", "7", "--print", "src/sum.c")
        expect(code == 0 and text.count("\nmutant ") == 5, "five are proposed", text)
        expect(run(root, "--propose", "5", "--seed", "7", "--print", "src/sum.c") == (code, text), "the same seed proposes the same", text)
        expect((root / "src/sum.c").read_text(encoding="utf-8") == before, "the source is as it was", "")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
