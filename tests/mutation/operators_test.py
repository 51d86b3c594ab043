#!/usr/bin/env python3
"""What the operators find and leave alone, and that planted text still reads as the same code."""
import fnmatch
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import operators  # noqa: E402


def found(body, head="int F(int a, int b) {"):
    text = f"// A file.\n{head}\n{body}\n}}\n"
    return {(" ".join(m.before.split()), m.after) for m in operators.mutants_of("x.cc", text)}


class Operators(unittest.TestCase):
    def test_operands_end_where_precedence_says(self):
        mutants = found("return a + b * 2 < c && d;")
        self.assertIn(("a + b * 2 < c", "a + b * 2 <= c"), mutants)
        self.assertIn(("b * 2", "b / 2"), mutants)
        self.assertIn(("a + b * 2", "a - b * 2"), mutants)
        self.assertIn(("a + b * 2", "a"), mutants)
        self.assertIn(("a + b * 2 < c && d", "a + b * 2 < c || d"), mutants)
        self.assertIn(("a + b * 2 < c && d", "d"), mutants)

    def test_operators_of_equal_rank_belong_to_the_left(self):
        self.assertIn(("a - b + c", "a - b - c"), found("return a - b + c;"))
        self.assertIn(("a - b", "a + b"), found("return a - b + c;"))

    def test_arguments_and_initialisers_end_operands(self):
        mutants = found("x = {f(a, b + c), d == e};")
        self.assertIn(("b + c", "b - c"), mutants)
        self.assertIn(("d == e", "d != e"), mutants)

    def test_templates_references_and_pointers_are_no_operators(self):
        self.assertEqual(set(), found("const std::vector<int>& v = w;\nauto&& u = x;\nint* p = q;"))

    def test_conditions_are_fixed_and_negated(self):
        mutants = found("if (a.ok(b)) return c;")
        for after in ("true", "false", "!(a.ok(b))"):
            self.assertIn(("a.ok(b)", after), mutants)
        self.assertEqual(set(), found("if (auto x = f(); x) return c;"))

    def test_calls_assignments_and_steps_are_dropped(self):
        mutants = found("a.b(c);\nd[e] = f;\ng += h;\n++i;\nreturn j;")
        for statement in ("a.b(c);", "d[e] = f;", "g += h;", "++i;"):
            self.assertIn((statement, ";"), mutants)
        self.assertIn(("g += h;", "g -= h;"), mutants)
        self.assertIn(("++i;", "--i;"), mutants)

    def test_declarations_are_not_dropped(self):
        mutants = found("Type a(b);\nstd::map<int, int> c;\nauto d = e;\nType f = g;")
        self.assertEqual(set(), mutants)

    def test_what_people_read_and_checks_are_left_alone(self):
        self.assertEqual(set(), found('CHECK(a < b);\nLogInfo("{}", a + b);\n// a < b\n'
                                      'return SystemError(fmt::format("a < b {}", a + 1));'))

    def test_constants_of_the_compiler_are_left_alone(self):
        self.assertEqual(set(), found("constexpr int k = a + 1;\nstatic_assert(a < b);\n"
                                      "std::array<int, 3> x;"))
        self.assertEqual(set(), found("", head="constexpr int kA = 1 + 2;\nstruct S {"))

    def test_memory_set_aside_is_left_alone(self):
        self.assertEqual(set(), found("a.reserve(b + 1);"))

    def test_rendering_keeps_lines_and_both_codes(self):
        text = "// A file.\nint F() {\n  a = b +\n      c;\n  return d;\n}\n"
        (mutant,) = [m for m in operators.mutants_of("x.cc", text) if m.after == "b - c"]
        planted = operators.render(text, [(7, mutant)])
        self.assertIn("(BRAID_MUTANT(7) ? (b - c) : (b +       c))", planted)
        self.assertEqual(text.count("\n"), planted.count("\n"))
        self.assertEqual(text.split("\n")[4], planted.split("\n")[4])


class ExcludedFiles(unittest.TestCase):
    def test_every_pattern_excludes_a_file(self):
        here = pathlib.Path(__file__).resolve().parent
        sources = [path.relative_to(here.parents[1]).as_posix()
                   for path in (here.parents[1] / "src").rglob("*.[hc]*")]
        for line in (here / "excluded.txt").read_text().splitlines():
            if not line.startswith("#"):
                pattern = line.split(": ")[0]
                self.assertTrue(any(fnmatch.fnmatch(name, pattern) for name in sources), pattern)


if __name__ == "__main__":
    unittest.main()
