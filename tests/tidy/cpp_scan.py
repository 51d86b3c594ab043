"""Reads C++ as text, without a compiler: comments and strings blanked, functions with their lengths
and parameter counts. It knows braces, parentheses and the shape of this code base, not C++;
what it cannot place it leaves alone.
"""
import re
from dataclasses import dataclass


def blank(text, keep_strings=False):
    """The text with comments (and contents of literals) replaced by spaces; line breaks stay."""
    pattern = re.compile(
        r"//[^\n]*|/\*.*?\*/"
        r'|R"(?P<tag>[^()\s\\]*)\(.*?\)(?P=tag)"'
        r'|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'",
        re.DOTALL)

    def replace(match):
        found = match.group(0)
        if found.startswith("/"):
            return re.sub(r"[^\n]", " ", found)
        if keep_strings:
            return found
        return '"' + re.sub(r"[^\n]", " ", found[1:-1]) + '"'

    return pattern.sub(replace, text)


def without_preprocessor(text):
    """Blanked text with directives, and macros that go over several lines, blanked as well."""
    directive = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
    return directive.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


LOCAL = re.compile(r"^(?!template|using|struct|class|enum|return|namespace)"
                   r"[A-Za-z_][\w:<>,&*\[\] ]*?[ *&](\w+)\(", re.MULTILINE)


def local_functions(text):
    """The functions of unnamed namespaces by name, with the line of the first of each."""
    code = without_preprocessor(blank(text))
    found = {}
    for opened in re.finditer(r"^namespace \{$", code, re.MULTILINE):
        depth, end = 1, opened.end()
        while depth and end < len(code):
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        for head in LOCAL.finditer(code[opened.end():end]):
            line = code.count("\n", 0, opened.end() + head.start(1)) + 1
            found.setdefault(head[1], line)
    return found


@dataclass
class Function:
    name: str
    line: int        # where its head begins
    lines: int       # head to closing brace; 0 for a declaration
    parameters: int


def count_parameters(inside):
    if inside.strip() in ("", "void"):
        return 0
    depth, commas = 0, 0
    for i, char in enumerate(inside):
        if char in "([{<":
            depth += 1
        elif char in ")]}" or (char == ">" and inside[i - 1] != "-"):
            depth -= 1
        elif char == "," and depth == 0:
            commas += 1
    return commas + 1


def head_parts(head):
    """(name, parameters as text) of a function's head, or None when it is something else."""
    depth = 0
    for i, char in enumerate(head):
        if char == "<":
            depth += 1
        elif char == ">" and head[i - 1] != "-":
            depth -= 1
        elif char == "(" and depth <= 0:
            name = re.search(NAME, head[:i])
            if not name or ("=" in head[:i] and "operator" not in head[:i]):
                return None
            nesting = 0
            for j in range(i, len(head)):
                nesting += (head[j] == "(") - (head[j] == ")")
                if nesting == 0:
                    if name.group(1) == "operator":
                        break  # operator()(...): the parameters are in the second pair
                    return name.group(1), head[i + 1:j]
            else:
                return None
    return None


NAME = r"(operator\s*(?:\(\s*\)|[^\s\w(]+|[\w:<>*&]*)|~?[A-Za-z_][\w:~]*)\s*$"
SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum)\b|\bextern\s*\"")
NOT_A_FUNCTION = {"static_assert", "alignas", "decltype", "CHECK", "requires", "if", "while", "for"}


def functions(text):
    """All functions at namespace or class scope: definitions with their length, declarations."""
    code = without_preprocessor(blank(text))
    found, stack, head_start, parens = [], [], 0, 0

    def add(end, closing_line):
        head = code[head_start:end]
        stripped = head.lstrip()
        while stripped.startswith(("public:", "private:", "protected:")):
            stripped = stripped[stripped.index(":") + 1:].lstrip()
        line = code.count("\n", 0, head_start + len(head) - len(stripped)) + 1
        parts = None if stripped.startswith(("using ", "typedef ")) else head_parts(stripped)
        if parts and parts[0] not in NOT_A_FUNCTION:
            lines = closing_line - line + 1 if closing_line else 0
            found.append(Function(parts[0], line, lines, count_parameters(parts[1])))

    for i, char in enumerate(code):
        at_scope = not stack or stack[-1][0] == "scope"
        if char == "(":
            parens += 1
        elif char == ")":
            parens -= 1
        elif char == "{":
            head = code[head_start:i]
            kind = "block"
            if at_scope and parens == 0:
                kind = kind_of_brace(head)
            elif at_scope:
                kind = "init"
            stack.append((kind, head_start, i, parens))
            if kind == "scope":
                head_start = i + 1
            parens = 0
        elif char == "}" and stack:
            kind, start, opened, parens = stack.pop()
            if kind == "function":
                head_start = start
                add(opened, code.count("\n", 0, i) + 1)
            if kind in ("function", "scope"):
                head_start = i + 1
        elif char == ";" and at_scope and parens == 0:
            add(i, 0)
            head_start = i + 1
    return found


def kind_of_brace(head):
    """What a brace at namespace or class scope opens, from the text before it."""
    text = head.strip()
    if "(" not in text:
        return "scope" if SCOPE.search(text) else "init"
    if re.search(r"=\s*$|=[^()]*$", text) and "operator" not in text:
        return "init"
    if re.search(r"\)[\s\w]*:[^:]", text) and re.search(r"[\w>]$", text):
        return "init"  # a member in a constructor's list: `: size_{0}`
    if re.match(r"(?:template\s*<.*>\s*)?(?:class|struct|union|enum|namespace)\b", text, re.S) and \
            not re.search(r"\)[\s\w]*$", text):
        return "scope"  # class alignas(64) X {
    return "function"
