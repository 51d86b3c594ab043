#!/usr/bin/env python3
"""Shows that each rule of tidy.py fires: a clean small tree has no finding, each seeded violation
has exactly the one that its case names. Banned words are joined here, so that this file passes too.
"""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cpp_scan  # noqa: E402
import tidy  # noqa: E402

HEAD = "// What this file is for, on which thread, and what always holds.\n"
CLEAN = {
    "src/LAYERS": "base:\ncache: base\nops: base\nserver: base cache\n"
                  "model: base\ncache/rows = ops\n",
    "src/base/result.h": HEAD + "#pragma once\nnamespace braid {\nstruct Point { int x; };\n}\n",
    "src/cache/pool.cc": HEAD + '#include "base/result.h"\nint Free(int a) { return a + 1; }\n',
    "src/CMakeLists.txt": "set(BRAID_CODE_TOGETHER cache\n  server)\n"
                          "set(BRAID_TESTS_TOGETHER base)\n",
    "src/server/local.cc": HEAD + "namespace {\nint Local(int a) { return a; }\n}\n",
    "src/base/local_test.cc": HEAD + "namespace {\nM<int> Local(int a) { return a; }\n}\n",
    "src/server/listener.cc": HEAD + 'const char* kEvery = "0.0.0" ".0";\n',
    "src/ops/cpu/kernels/dot.h": HEAD + "#include <cstdint>\n",
    "src/ops/cpu/avx2/dot.cc": HEAD + '#include <immintrin.h>\n#include "ops/cpu/kernels/dot.h"\n',
    "tests/tidy/exceptions.txt": "# none\n",
    "docs/decisions/001-a.md": "# 001: one\n",
    "scripts/run.py": "print('hello')\n",
}


def body(lines):
    return "int F() {\n" + "  ++n;\n" * (lines - 2) + "}\n"


# path, text that is put there, the rule that fires.
SEEDED = [
    ("src/LAYERS", "base:\ncache: base server\nserver: base cache\nops: base\n", "layer"),
    ("src/cache/a.cc", HEAD + '#include "server/http.h"\n', "layer"),
    ("src/base/a.h", HEAD + '#include "cache/pool.h"\n', "layer"),
    ("src/base/a.h", HEAD + "#include <cache/pool.h>\n", "layer"),
    ("src/base/a.h", HEAD + '#include "result.h"\n', "layer"),
    ("src/base/a.h", HEAD + '#include "base/absent.h"\n', "layer"),
    ("src/strange/a.h", HEAD, "layer"),
    ("src/cache/rows/a.cc", HEAD + '#include "cache/pool.h"\n', "layer"),
    ("src/base/a.h", HEAD + "\n" * 400, "lines"),
    ("src/base/a.cc", HEAD + "\n" * 600, "lines"),
    ("src/ops/a.cu", HEAD + "\n" * 800, "lines"),
    ("src/base/a.cc", HEAD + body(71), "function"),
    ("src/base/a.cc", HEAD + "namespace braid {\nclass A {\n" + body(71) + "};\n}\n", "function"),
    ("src/base/a.cc", HEAD + "A::A(int a)\n    : b_{a}, c_(a) {\n" + body(70)[10:], "function"),
    ("src/base/a_test.cc", HEAD + body(71).replace("int F()", "TEST(A, Holds)"), "function"),
    ("src/base/a.h", HEAD + "int F(int a, int b, int c, int d, int e, int f);\n", "parameters"),
    ("src/base/a.h", HEAD + "struct A {\n  A(int a, M<int, int> c, int d, int e,\n    int f,"
     " int g);\n};\n", "parameters"),
    ("src/base/a.h", HEAD + "// " + "x" * 98 + "\n", "columns"),
    ("scripts/a.py", "x = '" + "x" * 96 + "'\n", "columns"),
    ("rust/a.rs", "// " + "x" * 98 + "\n", "columns"),
    ("src/base/a.h", HEAD + "// TO" "DO: more\n", "word"),
    ("src/base/a.h", HEAD + "// FIX" "ME\n", "word"),
    ("docs/a.md", "This holds for" " now.\n", "word"),
    ("rust/a.rs", '// it is not imple' 'mented\n', "word"),
    ("docs/a.md", "Co-authored" "-by: nobody\n", "word"),
    ("src/base/a.cc", HEAD + "void F() { throw 1; }\n", "construct"),
    ("src/base/a.cc", HEAD + "std::shared_ptr<int> F();\n", "construct"),
    ("src/base/a.cc", HEAD + "void F() { assert(true); }\n", "construct"),
    ("src/base/a.cc", HEAD + "void F(std::regex& r);\n", "construct"),
    ("src/base/a.cc", HEAD + "void F() { alloca(8); }\n", "construct"),
    ("src/base/a.cc", HEAD + 'void F() { system("ls"); }\n', "construct"),
    ("src/base/a.cc", HEAD + 'void F() { popen("ls", "r"); }\n', "construct"),
    ("src/base/a.cc", HEAD + 'void F() { sprintf(b, "x"); }\n', "construct"),
    ("src/base/a.cc", HEAD + "int F() { return rand(); }\n", "construct"),
    ("src/cache/a.cc", HEAD + "auto F() { return steady_clock::now(); }\n", "construct"),
    ("src/cache/a.cc", HEAD + "auto F() { return chrono::system_clock::now(); }\n", "construct"),
    ("src/base/a.cc", HEAD + "#ifdef FAST\n#endif\n", "construct"),
    ("src/base/a.cc", HEAD + "static int counter = 0;\n", "construct"),
    ("src/base/a.cc", HEAD + "int& F() {\n  static int x{};\n  return x;\n}\n", "construct"),
    ("src/base/a.cc", HEAD + "thread_local int x;\n", "construct"),
    ("src/base/a.cc", HEAD + "int g_count = 0;\n", "construct"),
    ("src/server/a.cc", HEAD + 'const char* kHost = "0.0.0' '.0";\n', "construct"),
    ("src/base/cache_manager.h", HEAD, "name"),
    ("src/base/util.h", HEAD, "name"),
    ("src/base/a.h", HEAD + "class RequestHandler {};\n", "name"),
    ("src/base/a.h", HEAD + "struct ModelInfo;\n", "name"),
    ("src/base/a.h", HEAD + "using MathHelper = int;\n", "name"),
    ("src/base/a.h", "#pragma once\n", "opening"),
    ("src/ops/cpu/avx2/a.cc", HEAD + "#include <vector>\n", "isa"),
    ("src/ops/cpu/avx512/a.cc", HEAD + '#include "base/result.h"\n', "isa"),
    ("src/ops/cpu/kernels/dot.h", HEAD + "#include <algorithm>\n", "isa"),
    ("docs/a.md", "See /wo" "rk/shared for more.\n", "path"),
    ("scripts/a.sh", "cd /ro" "ot\n", "path"),
    ("src/base/a.h", HEAD + "// see spe" "cs/kernels 2\n", "path"),
    ("scripts/a.sh", "cat /ho" "me/someone/x\n", "path"),
    ("src/base/a.cc", HEAD + 'bool F() { return name == "qwen3_next"; }\n', "family"),
    ("src/base/families/a.cc", HEAD + 'const char* kName = "qwen3_next";\n', "family"),
    ("rust/src/a.rs", "// Ling-3 only\n", "family"),
    ("src/cache/a.cc", HEAD + "// seeded crowd of one more\n", "folder"),
    ("src/server/a.cc", HEAD + "namespace {\nvoid Local() {\n}\n}  // namespace\n", "local"),
    ("src/base/a_test.cc", HEAD + "namespace a {\nnamespace {\n\nclass A {};\n\nA* Local() {\n}\n"
     "}  // namespace\n}\n", "local"),
    ("docs/decisions/001-b.md", "# 001: two with one number\n", "record"),
    ("tests/tidy/exceptions.txt", "src/base/result.h: lines: it is long\n", "exceptions"),
    ("tests/tidy/exceptions.txt", "src/base/result.h lines\n", "exceptions"),
]

# Texts that look like violations and are none.
INNOCENT = [
    ("src/base/a.cc", HEAD + '// we never throw\nconst char* kText = "throw assert( rand()";\n'),
    ("src/base/a.cc", HEAD + "static_assert(sizeof(int) == 4);\nstatic constexpr int kX = 1;\n"),
    ("src/base/a.cc", HEAD + "static int F(int a);\nstatic const int kY[] = {1, 2};\n"),
    ("src/base/a.cc", HEAD + body(70)),
    ("src/base/a.cc", HEAD + "namespace braid {\n" + body(50) + body(50) + "}\n"),
    ("src/base/a.h", HEAD + "int F(int a, int b, int c, int d, M<int, int> e);\n"),
    ("src/base/a.h", HEAD + "std::function<int(int, int, int, int, int, int)> f;\n"),
    ("src/base/a.h", HEAD + "inline int F() { return G(1, 2, 3, 4, 5, 6); }\n"),
    ("src/base/a.h", HEAD + "#define F(a, b, c, d, e, f) \\\n  (a)\n"),
    ("src/base/clock.cc", HEAD + "auto F() { return std::chrono::steady_clock::now(); }\n"),
    ("src/base/information.h", HEAD + "struct Commonwealth {};\n"),
    ("src/base/a.cc", HEAD + "template <class T>\nT F(T x) { return x; }\n"),
    ("src/model/families/a.cc", HEAD + 'const char* kName = "qwen3_next";\n'),
    ("src/cache/rows/a.cc", HEAD + '#include "ops/cpu/kernels/dot.h"\n'),
    ("src/base/a_test.cc", HEAD + 'const char* kName = "kimi_linear";\n'),
    ("src/base/a.cc", HEAD + "void Linger();  // on the calling thread\n"),
    ("docs/a.md", "x" * 200 + " a/root/b ${HOME}/wo" "rk/x https://example.org/home/\n"),
    ("src/cache/a.cc", HEAD + "// seeded crowd\n"),
    ("src/server/a_test.cc", HEAD + "namespace {\nvoid Local() {\n}\n}\n"),
    ("src/cache/a.cc", HEAD + "namespace {\nvoid Local() {\n}\n}\n"),
    ("src/base/a.cc", HEAD + "namespace {\nvoid Local() {\n}\n}\n"),
    ("src/server/a.cc", HEAD + "int F() {\n  return Local(1);\n}\nnamespace {\nint G() {\n"
     "  return Local(2);\n}\n}\nint Local();\n"),
    ("web/dist/index.html", "x" * 5000 + " TO" "DO\n"),
    ("tests/tidy/exceptions.txt", "src/base/long.h: lines: seeded below\n"),
]


class TidyTest(unittest.TestCase):
    def findings(self, path, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = {**CLEAN, path: text}
            if "seeded below" in text:
                files["src/base/long.h"] = HEAD + "\n" * 400
            if "seeded crowd" in text:  # 25 or 26 files with pool.cc, the tests aside
                others = 24 if "one more" in text else 23
                files |= {f"src/cache/{name}.cc": HEAD for n in range(others)
                          for name in (f"x{n}", f"x{n}_test")}
            for name, content in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(content)
            return tidy.check(root)[0]

    def test_every_rule_has_a_seeded_violation(self):
        self.assertEqual({rule for _, _, rule in SEEDED}, tidy.RULES)

    def test_a_clean_tree_has_no_finding(self):
        self.assertEqual(self.findings("src/base/b.h", HEAD), [])

    def test_functions_are_measured_from_head_to_closing_brace(self):
        text = "namespace a {\nstruct B {\n  int F(int x,\n      M y) {\n    return x;\n  }\n};\n}"
        found = [f for f in cpp_scan.functions(text) if f.name == "F"]
        self.assertEqual([(f.line, f.lines, f.parameters) for f in found], [(3, 4, 2)])

    def test_operators_and_templates_are_read(self):
        text = "struct A {\n  int operator()(int a, M<int> b) const;\n  A& operator=(A&& o);\n};\n"
        self.assertEqual([(f.name, f.parameters) for f in cpp_scan.functions(text)],
                         [("operator()", 2), ("operator=", 1)])


def add_cases():
    def seeded(path, text, rule):
        def test(self):
            found = self.findings(path, text)
            self.assertEqual(len(found), 1, found)
            self.assertEqual(found[0].split(": ")[1], rule, found)
        return test

    def innocent(path, text):
        def test(self):
            self.assertEqual(self.findings(path, text), [])
        return test

    for index, (path, text, rule) in enumerate(SEEDED):
        setattr(TidyTest, f"test_seeded_{index:02}_{rule}", seeded(path, text, rule))
    for index, (path, text) in enumerate(INNOCENT):
        setattr(TidyTest, f"test_innocent_{index:02}", innocent(path, text))


add_cases()

if __name__ == "__main__":
    result = unittest.TextTestRunner(verbosity=0).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(TidyTest))
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed")
    sys.exit(int(bad > 0))
