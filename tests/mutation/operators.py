"""Finds one-line mutants in C++: where in a file, and which code takes the place of which.

It reads tokens, not C++. It relies on clang-format's layout: a binary operator has a space on both
sides, a template's bracket, a reference and a pointer have none before them. A mutant that does not
compile is dropped by the caller. Every mutant replaces a span [begin, end) of the text that other
code can stand for, so that a build can hold both and choose between them when it runs.
"""
import pathlib
import re
import sys
from dataclasses import asdict, dataclass

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tidy"))
import cpp_scan  # noqa: E402

TOKEN = re.compile(
    r"[A-Za-z_]\w*|\d(?:[\w.']|[eEpP][+-])*|\"[^\"]*\"|<=>|<<=|>>=|->\*|\.\.\.|::|->|\+\+|--|"
    r"&&|\|\||[-+*/%&|^=!<>]=|<<|>>|\S")
PRECEDENCE = {"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7,
              ">=": 7, "<=>": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10}
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
SWAPS = {"<": ["<="], "<=": ["<"], ">": [">="], ">=": [">"], "==": ["!="], "!=": ["=="],
         "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["/"], "&&": ["||"], "||": ["&&"],
         "&": ["|"], "|": ["&"], "<<": [">>"], ">>": ["<<"]}
ASSIGNMENT_SWAPS = {"+=": ["-=", "="], "-=": ["+=", "="], "|=": ["&=", "="], "&=": ["|=", "="],
                    "*=": ["/="], "/=": ["*="]}
STOPS = {";", "{", "}", "(", "[", ",", "?", ":", *ASSIGNMENTS}
STOP_WORDS = {"return", "co_return", "co_yield", "case", "else", "do", "throw", "goto"}
CLOSING = {")": "(", "]": "[", "}": "{"}
OPENING = {"(": ")", "[": "]", "{": "}"}
# Texts for people, and checks of what cannot happen: tests owe them nothing.
TEXT_CALLS = re.compile(r"(?:Log(?:Info|Warning|Error|Debug)|CHECK|static_assert|format|print"
                        r"|\w*Problem|\w*Fail|\w*Error|TraceSpan)$")
# Statements whose loss changes speed alone.
SPEED_CALLS = re.compile(
    r"\b(?:reserve|shrink_to_fit|Prefetch\w*|_mm_prefetch|_mm_pause|CpuPause)\s*\(")
NO_STATEMENT = STOP_WORDS | {
    "if", "for", "while", "switch", "default", "using", "delete", "break",
    "continue", "static_assert", "typedef", "public", "private", "co_await",
    "protected", "template", "namespace", "constexpr", "const", "static", "auto",
    "CHECK", "ASSIGN_OR_RETURN", "RETURN_IF_ERROR", "LogInfo", "LogWarning",
    "LogError", "LogDebug", "sizeof", "new", "struct", "thread_local", "operator",
    "BRAID_ASSIGN_OR_RETURN_INNER"}


@dataclass
class Mutant:
    path: str
    line: int       # of the changed token
    kind: str       # the operator, for the report
    begin: int      # the span that is replaced
    end: int
    shape: str      # "value": an expression; "statement": with its semicolon
    before: str     # the span's text
    after: str      # what stands there instead

    def as_dict(self):
        return asdict(self)


@dataclass
class Token:
    text: str
    begin: int
    end: int

    def is_word(self):
        return self.text[0].isalpha() or self.text[0] == "_"

    def is_value(self):
        return self.text[0].isalnum() or self.text[0] in "_\"" or self.text in (")", "]", "}", ">")


def body_spans(code):
    """[begin, end) of the bodies of functions that a test can reach at run time."""
    spans, line_starts = [], [0] + [m.end() for m in re.finditer("\n", code)]
    for function in cpp_scan.functions(code):
        if function.lines == 0:
            continue
        begin = line_starts[function.line - 1]
        last = min(function.line - 1 + function.lines, len(line_starts) - 1)
        end = line_starts[last] if last > function.line - 1 else len(code)
        head = code[begin:end].split("{", 1)[0]
        if re.search(r"\b(?:consteval|= default|= delete)\b", head):
            continue
        opened = code.find("{", begin, end)
        if opened >= 0:
            spans.append((opened, end))
    return spans


class Scanner:
    """The mutants of one file's functions."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.code = cpp_scan.without_preprocessor(cpp_scan.blank(text))
        self.tokens = [Token(m[0], m.start(), m.end()) for m in TOKEN.finditer(self.code)]
        self.partner = self.match_brackets()
        self.enclosing = self.find_enclosing()
        self.found = []

    def match_brackets(self):
        partner, stack = {}, []
        for i, token in enumerate(self.tokens):
            if token.text in OPENING:
                stack.append(i)
            elif token.text in CLOSING and stack:
                partner[i] = stack.pop()
                partner[partner[i]] = i
        return partner

    def find_enclosing(self):
        """Per token, the index of the bracket that it stands in, or -1."""
        enclosing, stack = [], []
        for i, token in enumerate(self.tokens):
            if token.text in CLOSING and stack:
                stack.pop()
            enclosing.append(stack[-1] if stack else -1)
            if token.text in OPENING:
                stack.append(i)
        return enclosing

    def spaced(self, i):
        t = self.tokens[i]
        return self.code[t.begin - 1:t.begin].isspace() and self.code[t.end:t.end + 1].isspace()

    def binary(self, i):
        """The precedence of token i as a binary operator; 0 when it is none."""
        token = self.tokens[i]
        if token.text not in PRECEDENCE or i == 0 or not self.spaced(i):
            return 0
        before = self.tokens[i - 1]
        if not before.is_value() or before.text in STOP_WORDS | {"template", "operator"}:
            return 0
        return PRECEDENCE[token.text]

    def left_of(self, i, precedence):
        """The first token of the operand that ends before token i."""
        j = i - 1
        while j >= 0:
            text = self.tokens[j].text
            if text in CLOSING:
                if j not in self.partner or (text == "}" and self.ends_block(j)):
                    break
                j = self.partner[j] - 1
                continue
            if text in STOPS or text in STOP_WORDS or (
                    self.binary(j) and self.binary(j) < precedence):
                break
            j -= 1
        return j + 1

    def ends_block(self, j):
        """Whether the brace closes a block and not an initialiser."""
        before = self.tokens[self.partner[j] - 1]
        return before.text in (")", ";", "{", "}", "else", "do", "const", "mutable", "noexcept")

    def right_of(self, i, precedence):
        """The last token of the operand that begins behind token i."""
        j = i + 1
        while j < len(self.tokens):
            text = self.tokens[j].text
            if text in ("(", "["):
                if j not in self.partner:
                    break
                j = self.partner[j] + 1
                continue
            if text == "{" and self.tokens[j - 1].is_value() and j in self.partner:
                j = self.partner[j] + 1
                continue
            if text in STOPS or text in CLOSING or (
                    self.binary(j) and self.binary(j) <= precedence):
                break
            j += 1
        return j - 1

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1

    def piece(self, first, last):
        return self.text[self.tokens[first].begin:self.tokens[last].end]

    def add(self, at, kind, span, after, shape="value"):
        """`span`: first and last token; `at`: the token whose line is told."""
        begin, end = self.tokens[span[0]].begin, self.tokens[span[1]].end
        before = self.text[begin:end]
        if "//" in before or "co_await" in before or before == after:
            return
        if re.search(r"^\s*#", before, re.M) or span[1] < span[0]:
            return
        self.found.append(Mutant(self.path, self.line_of(self.tokens[at].begin), kind, begin, end,
                                 shape, before, after))

    def said_to_people(self, i):
        """Whether the token is part of a message, a check, or of something constant."""
        j = self.enclosing[i]
        while j >= 0:
            if self.tokens[j].text == "(" and j > 0 and TEXT_CALLS.match(self.tokens[j - 1].text):
                return True
            j = self.enclosing[j]
        start = i
        while start > 0 and self.tokens[start - 1].text not in (";", "{", "}"):
            start -= 1
        end = self.code.find(";", self.tokens[i].end)
        if SPEED_CALLS.search(self.code[self.tokens[start].begin:end]) and \
                self.tokens[start].text not in ("if", "for", "while", "return"):
            return True
        words = {t.text for t in self.tokens[start:i + 1]}
        return bool(words & {"constexpr", "static_assert", "case", "using", "template",
                             "thread_local", "constinit", "sizeof", "alignas"})

    # One function per group of operators; each takes the index of a token.

    def binary_operators(self, i):
        precedence = self.binary(i)
        if not precedence:
            return
        token = self.tokens[i]
        first, last = self.left_of(i, precedence), self.right_of(i, precedence)
        if first >= i or last <= i:
            return
        left, right = self.piece(first, i - 1), self.piece(i + 1, last)
        for other in SWAPS.get(token.text, []):
            self.add(i, "operator", (first, last), f"{left} {other} {right}")
        if token.text in ("&&", "||"):
            self.add(i, "operand dropped", (first, last), left)
            self.add(i, "operand dropped", (first, last), right)
        elif token.text in ("+", "-"):
            self.add(i, "operand dropped", (first, last), left)

    def literals(self, i):
        token = self.tokens[i]
        if token.text in ("true", "false"):
            self.add(i, "boolean", (i, i), "false" if token.text == "true" else "true")
        elif re.fullmatch(r"\d+", token.text):
            if re.search(r"\w<[^<>();]*$", self.code[max(0, token.begin - 60):token.begin]) and \
                    re.match(r"[^<>();]*>", self.code[token.end:token.end + 60]):
                return  # an argument of a template
            if self.tokens[i - 1].text == "[" and i >= 2 and self.tokens[i - 2].is_word() and \
                    self.tokens[i + 2].text in (";", "=", "{"):
                return  # perhaps an array's size
            others = ["1"] if token.text == "0" else ["0"] if token.text == "1" else [
                str(int(token.text) + 1), str(int(token.text) - 1)]
            for other in others:
                self.add(i, "number", (i, i), other)

    def negations(self, i):
        if self.tokens[i].text != "!" or self.code[self.tokens[i].end].isspace():
            return
        last = self.postfix_end(i + 1)
        if last is not None:
            self.add(i, "negation dropped", (i, last),
                     f"static_cast<bool>({self.piece(i + 1, last)})")

    def postfix_end(self, i):
        """The last token of the name, call or parenthesis that begins at i."""
        j = i
        while self.tokens[j].text in ("*", "!", "::"):
            j += 1
        if self.tokens[j].text == "(" and j in self.partner:
            j = self.partner[j]
        elif not self.tokens[j].is_word():
            return None
        while j + 1 < len(self.tokens):
            following = self.tokens[j + 1]
            if following.text in ("(", "[") and j + 1 in self.partner:
                j = self.partner[j + 1]
            elif following.text in (".", "->", "::") and self.tokens[j + 2].is_word():
                j += 2
            else:
                return j
        return j

    def conditions(self, i):
        if self.tokens[i].text != "if" or self.tokens[i + 1].text != "(":
            return
        first, last = i + 2, self.partner.get(i + 1, 0) - 1
        if last < first or any(self.tokens[j].text in (";", "=") and self.enclosing[j] == i + 1
                               for j in range(first, last + 1)):
            return  # it declares something
        condition = self.piece(first, last)
        self.add(i, "condition", (first, last), f"!({condition})")
        self.add(i, "condition", (first, last), "false")
        self.add(i, "condition", (first, last), "true")

    def extremes(self, i):
        token = self.tokens[i]
        if token.text not in ("min", "max") or self.tokens[i - 1].text != "::":
            return
        last = self.postfix_end(i - 2)
        if last is None or self.tokens[i - 2].text != "std" or self.tokens[last].text != ")":
            return
        other = "max" if token.text == "min" else "min"
        rest = self.text[token.end:self.tokens[last].end]
        self.add(i, "extreme", (i - 2, last), f"std::{other}{rest}")

    def statements(self, i):
        """A call, an assignment or a step that is left out or done in another way."""
        if i == 0 or self.tokens[i - 1].text not in (";", "{", "}", ")", "else"):
            return
        opened = self.enclosing[i]
        if opened >= 0 and self.tokens[opened].text != "{":
            return  # a part of for (;;)
        token, j = self.tokens[i], i
        if token.text in ("break", "continue") and self.tokens[i + 1].text == ";":
            other = "continue" if token.text == "break" else "break"
            self.add(i, "jump", (i, i + 1), f"{other};", "statement")
            return
        while self.tokens[j].text in ("++", "--", "*"):
            j += 1
        if not self.tokens[j].is_word() or self.tokens[j].text in NO_STATEMENT or \
                TEXT_CALLS.match(self.tokens[j].text):
            return
        end = i
        while end < len(self.tokens) and self.tokens[end].text != ";":
            end = self.partner[end] + 1 if self.tokens[end].text in OPENING and \
                end in self.partner else end + 1
            if end < len(self.tokens) and self.tokens[end].text in CLOSING:
                return
        last = self.postfix_end(j)
        if last is None or end >= len(self.tokens) or end <= i:
            return
        following = self.tokens[last + 1].text
        if self.tokens[i - 1].text == ")" and self.partner.get(i - 1, 0) and \
                self.tokens[self.partner[i - 1] - 1].text not in ("if", "for", "while"):
            return
        if following in ASSIGNMENTS or (following == ";" and (
                self.tokens[last].text == ")" or j > i)) or following in ("++", "--"):
            self.add(i, "statement dropped", (i, end), ";", "statement")
        for other in ASSIGNMENT_SWAPS.get(following, []):
            self.add(i, "assignment", (i, end), f"{self.piece(i, last)} {other} "
                     f"{self.piece(last + 2, end)}", "statement")
        if token.text in ("++", "--"):
            other = "--" if token.text == "++" else "++"
            self.add(i, "assignment", (i, end), other + self.piece(i + 1, end), "statement")

    def scan(self):
        spans = body_spans(self.code)
        at = 0
        for i, token in enumerate(self.tokens):
            while at < len(spans) and token.begin >= spans[at][1]:
                at += 1
            if at == len(spans):
                break
            if token.begin < spans[at][0] or self.said_to_people(i):
                continue
            for find in (self.binary_operators, self.literals, self.negations, self.conditions,
                         self.extremes, self.statements):
                find(i)
        return self.found


def mutants_of(path, text):
    return Scanner(path, text).scan()


def render(text, chosen):
    """The text with all chosen (number, mutant) behind switches; their spans do not overlap."""
    out, at = [], 0
    for number, mutant in sorted(chosen, key=lambda pair: pair[1].begin):
        out.append(text[at:mutant.begin])
        on = f"BRAID_MUTANT({number})"
        before, after = (" ".join(part.split("\n")) for part in (mutant.before, mutant.after))
        if mutant.shape == "statement":
            piece = f"{{ if ({on}) {{ {after} }} else {{ {before} }} }}"
        elif mutant.kind in ("condition", "negation dropped"):
            piece = f"({on} ? ({after}) : static_cast<bool>({before}))"
        else:
            piece = f"({on} ? ({after}) : ({before}))"
        out.append(piece + "\n" * mutant.before.count("\n"))
        at = mutant.end
    return "".join(out) + text[at:]
