"""Synthetic chat tasks: an endless training stream and held-out sets.

Every problem has a key, the text that identifies it.  A problem is held out
if crc32(key) % 64 == 0; the training stream never draws one and the
evaluation sets draw nothing else.  `python tasks.py OUT --seed N` writes the
evaluation sets as JSON lines.
"""

import argparse
import json
import pathlib
import random
import zlib
from dataclasses import dataclass, field

TASKS = ["arithmetic", "retrieval", "tools", "lists", "text"]

NAMES = (
    "Mira Tom Anna Ben Lena Omar Sara Paul Nina Hugo Ida Karl Rosa Finn Emma Noah Lucy Adam Ella "
    "Max Clara Peter Marta Jonas"
).split()
FEMALE = set("Mira Anna Lena Sara Nina Ida Rosa Emma Lucy Ella Clara Marta".split())
OBJECTS = (
    "apples pears books coins stones shells cards stamps marbles buttons pencils flowers oranges "
    "stars tickets"
).split()
BOXES = "boxes bags baskets jars crates trays".split()
ADJECTIVES = (
    "green red blue old small silver golden wooden white black quiet bright heavy round broken "
    "tiny purple dusty striped yellow warm cold strange simple"
).split()
NOUNS = (
    "lantern key clock map mirror bottle drum chair ladder kettle basket anchor candle rope wheel "
    "hammer flag bell piano carpet statue wagon compass violin helmet box ship engine table radio"
).split()
ROOMS = (
    "kitchen garden cellar attic library hall workshop stable tower garage bedroom office school "
    "market station"
).split()
WORDS = (
    "apple banana cherry grape lemon mango orange peach pear plum cat dog fox horse lion mouse "
    "rabbit sheep tiger wolf bread butter cheese honey milk rice salt soup sugar tea boat bridge "
    "cloud field forest hill island lake river sea chair clock desk door lamp shelf sofa table "
    "vase window amber blue green grey pink red silver violet white yellow house school market "
    "street winter summer music paper number stone tree wind fire rain snow moon star sun"
).split()
UNICODE = (
    "café naïve jalapeño Zürich Malmö Łódź Привет мир Ελλάδα 東京 北京 你好 こんにちは "
    "한국 שלום مرحبا नमस्ते 😀 🚀 🌍 ❤️ π≈3 €20 ½ → ∑ ñandú São Göteborg Дом 水 火"
).split()
CITIES = (
    "Oslo Paris Rome Berlin Madrid Lima Cairo Tokyo Delhi Sydney Dublin Prague Vienna Athens "
    "Boston London Lisbon Milan Geneva Hamburg Warsaw Kyoto Seoul Nairobi Toronto Denver Chicago "
    "Havana Lagos Malaga"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


def held_out(key):
    """The hash rule that separates evaluation problems from training ones."""
    return zlib.crc32(key.encode()) % 64 == 0


@dataclass
class Turn:
    """One problem: what the user says and what a good assistant answers."""

    key: str
    user: str
    answer: str
    thought: str
    check: str = "exact"  # exact | contains | number | tool_call | no_tool_call
    expected: object = None
    calls: list = field(default_factory=list)  # (name, arguments, result)


@dataclass
class Sample:
    """A document: chat messages (last one is the target) or plain text."""

    task: str
    messages: list = None
    tools: list = None
    thinking: bool = False
    text: str = None
    answer: object = None
    check: str = None


class World:
    """Draws problems of one split from one seed."""

    def __init__(self, seed, heldout=False):
        self.rng = random.Random(seed)
        self.heldout = heldout

    def draw(self, make, *args):
        """Call `make` until the problem belongs to this split."""
        while True:
            turn = make(*args)
            if held_out(turn.key) == self.heldout:
                return turn

    def pick(self, *options):
        """One of the options."""
        return self.rng.choice(options)

    # -- arithmetic ---------------------------------------------------------

    def step(self, v):
        """One operation on the running value: (sign, operand, result)."""
        r = self.rng
        if r.random() < 0.5 and v <= 79:
            b = r.randint(2, 20)
            return "+", b, v + b
        if v < 4:
            b = r.randint(2, 20)
            return "+", b, v + b
        b = r.randint(2, min(20, v - 1))
        return "-", b, v - b

    def word_problem(self):
        """A story of one to four operations."""
        r, pick = self.rng, self.pick
        name, friend = r.sample(NAMES, 2)
        pron = "she" if name in FEMALE else "he"
        Pron = pron.capitalize()
        obj = pick(*OBJECTS)
        lines, eqs, sig = [], [], []
        kind = r.random()
        if kind < 0.25:
            a, b = r.randint(2, 9), r.randint(2, 9)
            v = a * b
            box = pick(*BOXES)
            lines.append(
                pick(
                    f"{name} has {a} {box} with {b} {obj} in each.",
                    f"There are {b} {obj} in each of {name}'s {a} {box}.",
                )
            )
            eqs.append(f"{a} * {b} = {v}.")
            sig += [a, "*", b]
        elif kind < 0.4:
            a, b = r.randint(2, 9), r.randint(2, 9)
            v = a * b
            lines.append(f"One of the {obj} costs {a} coins. {name} buys {b} {obj}.")
            eqs.append(f"{a} * {b} = {v}.")
            sig += [a, "x", b]
            q = pick("How many coins are needed?", f"How many coins does {name} pay?")
            return self._finish(lines, q, eqs, v, sig, name + obj)
        else:
            v = r.randint(2, 60)
            lines.append(
                pick(
                    f"{name} has {v} {obj}.",
                    f"{name} starts the day with {v} {obj}.",
                    f"There are {v} {obj} on {name}'s table.",
                )
            )
            sig.append(v)
        n = r.choice([1, 1, 2, 2, 3]) if not eqs else r.choice([0, 1, 1, 2])
        for _ in range(n):
            sign, b, new = self.step(v)
            if sign == "+":
                lines.append(
                    pick(
                        f"{Pron} buys {b} more.",
                        f"{friend} gives {name} {b} more {obj}.",
                        f"Then {pron} finds {b} more {obj}.",
                        f"{Pron} gets {b} {obj} from {friend}.",
                    )
                )
            else:
                lines.append(
                    pick(
                        f"{Pron} gives {b} to {friend}.",
                        f"{Pron} loses {b} of them.",
                        f"Then {pron} sells {b} {obj}.",
                        f"{friend} takes {b} of the {obj}.",
                    )
                )
            eqs.append(f"{v} {sign} {b} = {new}.")
            sig += [sign, b]
            v = new
        q = pick(
            f"How many {obj} does {name} have now?",
            f"How many {obj} are there at the end?",
            f"How many {obj} are left with {name}?",
        )
        return self._finish(lines, q, eqs, v, sig, name + obj)

    def _finish(self, lines, question, eqs, v, sig, who):
        work = " ".join(eqs)
        key = f"arith {sig} {who}"
        return Turn(key, " ".join(lines + [question]), f"The answer is {v}.", work, "number", v)

    def sum_problem(self):
        """A bare sum, the drill behind the word problems."""
        r = self.rng
        if r.random() < 0.3:
            a, b = r.randint(2, 9), r.randint(2, 9)
            op, v = "*", a * b
        else:
            a = r.randint(2, 81)
            op, b, v = self.step(a)
        form = self.pick("What is {}?", "Compute {}.", "How much is {}?")
        return Turn(
            f"sum {a} {op} {b}",
            form.format(f"{a} {op} {b}"),
            f"The answer is {v}.",
            f"{a} {op} {b} = {v}.",
            "number",
            v,
        )

    # -- retrieval ----------------------------------------------------------

    def fact(self, thing):
        """(sentence, question, answer, value) about one thing."""
        r = self.rng
        kind = r.randrange(4)
        if kind < 2:
            code = "".join(r.choice("0123456789") for _ in range(4))
            s = f"The code of the {thing} is {code}."
            return s, f"What is the code of the {thing}?", s, code
        if kind == 2:
            name = r.choice(NAMES)
            s = f"The owner of the {thing} is {name}."
            return (
                s,
                self.pick(f"Who is the owner of the {thing}?", f"Who owns the {thing}?"),
                s,
                name,
            )
        room = r.choice(ROOMS)
        s = f"The place of the {thing} is the {room}."
        return s, self.pick(f"What is the place of the {thing}?", f"Where is the {thing}?"), s, room

    def filler(self):
        """A sentence without a fact."""
        r = self.rng
        return self.pick(
            f"The weather in {r.choice(CITIES)} was "
            f"{self.pick('mild', 'cold', 'warm', 'rainy')} that day.",
            f"{r.choice(NAMES)} walked slowly through the {r.choice(ROOMS)}.",
            f"Nobody talked about the {r.choice(WORDS)}.",
            f"It was a {self.pick('quiet', 'long', 'busy', 'grey')} {r.choice(DAYS)}.",
            f"{r.choice(NAMES)} and {r.choice(NAMES)} drank tea and waited.",
            "The hours passed and nothing happened.",
            f"Somebody had left the {r.choice(WORDS)} in the {r.choice(ROOMS)}.",
            f"Later {r.choice(NAMES)} closed the door and went home.",
        )

    def retrieval(self, budget):
        """Facts and filler of about `budget` tokens, and problems about them."""
        r = self.rng
        share = r.choice([0.25, 0.5, 0.8, 1.0])
        total = max(2, budget // 11)
        n = max(2, min(int(total * share), 60))
        things = [f"{a} {b}" for a in ADJECTIVES for b in NOUNS]
        facts = [self.fact(t) for t in r.sample(things, n)]
        body = [f[0] for f in facts] + [self.filler() for _ in range(total - n)]
        r.shuffle(body)
        intro = self.pick("Read these notes.", "Here are some notes.", "Remember these facts.")
        context = f"{intro}\n" + " ".join(body)

        def turn():
            s, q, a, value = r.choice(facts)
            return Turn(
                "fact " + s, q, a, f"Look for the {q.split('the ')[-1][:-1]}.", "contains", value
            )

        return context, turn

    # -- tools --------------------------------------------------------------

    def tool(self, name):
        """Schema and problem maker of one tool."""
        return TOOL_SCHEMAS[name], getattr(self, "use_" + name)

    def use_get_weather(self):
        """A question about the weather."""
        city, day = self.rng.choice(CITIES), self.rng.choice(DAYS)
        sky, t = self.pick("sunny", "cloudy", "rainy", "windy"), self.rng.randint(-5, 35)
        user = self.pick(
            f"What is the weather in {city} on {day}?",
            f"Will it rain in {city} on {day}?",
            f"Tell me the weather for {day} in {city}.",
        )
        return self.call(
            user,
            "get_weather",
            {"city": city, "day": day},
            {"sky": sky, "temperature": t},
            f"On {day} it will be {sky} in {city}, with {t} degrees.",
        )

    def use_calculate(self):
        """A sum beyond the model's own arithmetic."""
        a, b, op = self.rng.randint(12, 999), self.rng.randint(12, 999), self.pick("+", "-", "*")
        v = {"+": a + b, "-": a - b, "*": a * b}[op]
        user = self.pick(
            f"What is {a} {op} {b}?",
            f"Please calculate {a} {op} {b}.",
            f"Use the calculator for {a} {op} {b}.",
        )
        return self.call(
            user, "calculate", {"expression": f"{a} {op} {b}"}, {"result": v}, f"The result is {v}."
        )

    def use_search(self):
        """A search for a phrase."""
        what = self.pick("history", "price", "picture", "origin")
        q = f"{what} of the {self.rng.choice(ADJECTIVES)} {self.rng.choice(NOUNS)}"
        n = self.rng.randint(1, 99)
        user = self.pick(f"Search for the {q}.", f"Look up the {q}.", f"Please find the {q}.")
        return self.call(
            user, "search", {"query": q}, {"results": n}, f"I found {n} results for the {q}."
        )

    def use_set_light(self):
        """A light to turn on or off."""
        room, state, level = (
            self.rng.choice(ROOMS),
            self.pick("on", "off"),
            self.rng.randrange(5, 101, 5),
        )
        if state == "on":
            user = self.pick(
                f"Turn on the light in the {room} at {level} percent.",
                f"Set the {room} light to {level} percent.",
            )
            return self.call(
                user,
                "set_light",
                {"room": room, "state": "on", "level": level},
                {"ok": True},
                f"The light in the {room} is on.",
            )
        user = self.pick(
            f"Turn off the light in the {room}.", f"Switch off the {room} light, please."
        )
        return self.call(
            user,
            "set_light",
            {"room": room, "state": "off", "level": 0},
            {"ok": True},
            f"The light in the {room} is off.",
        )

    def use_add_event(self):
        """An appointment to note."""
        title = (
            self.pick("lunch", "dentist", "meeting", "call", "piano lesson", "dinner")
            + " with "
            + self.rng.choice(NAMES)
        )
        day, hour = self.rng.choice(DAYS), self.rng.randint(8, 20)
        user = self.pick(
            f"Add {title} on {day} at {hour}:00 to my calendar.",
            f"Plan {title} for {day} at {hour}:00.",
        )
        return self.call(
            user,
            "add_event",
            {"title": title, "day": day, "time": f"{hour}:00"},
            {"ok": True},
            f"I added {title} on {day} at {hour}:00.",
        )

    def use_convert_units(self):
        """A value to convert."""
        a, b = self.pick(
            ("km", "miles"), ("miles", "km"), ("kg", "pounds"), ("pounds", "kg"), ("meters", "feet")
        )
        n, v = self.rng.randint(2, 200), self.rng.randint(2, 500)
        user = self.pick(f"Convert {n} {a} to {b}.", f"How many {b} are {n} {a}?")
        return self.call(
            user,
            "convert_units",
            {"value": n, "from": a, "to": b},
            {"result": v},
            f"{n} {a} are {v} {b}.",
        )

    def call(self, user, name, args, result, final):
        """One request, its tool call, result and final answer."""
        return Turn(
            f"{name} {json.dumps(args)}",
            user,
            final,
            f"I need the tool {name}.",
            "tool_call",
            {"name": name, "arguments": args},
            [(name, args, result)],
        )

    def two_calls(self, makers):
        """Two requests at once, answered by two parallel calls."""
        a, b = self.draw(self.rng.choice(makers)), self.draw(self.rng.choice(makers))
        user = a.user + self.pick(" ", " And: ", " Also: ") + b.user
        thought = f"I need the tools {a.calls[0][0]} and {b.calls[0][0]}."
        return Turn(
            a.key + b.key,
            user,
            f"{a.answer} {b.answer}",
            thought,
            "tool_call",
            [a.expected, b.expected],
            a.calls + b.calls,
        )

    def smalltalk(self):
        """A request that needs no tool."""
        name, city = self.rng.choice(NAMES), self.rng.choice(CITIES)
        user, answer = self.pick(
            (f"Hello, I am {name} from {city}.", f"Hello {name}! How can I help you?"),
            (
                f"My name is {name} and I live in {city}. Who are you?",
                f"Nice to meet you, {name}. I am Braid, a small language model.",
            ),
            (f"{name} from {city} says thank you.", f"You are welcome, {name}!"),
            (
                f"Good morning from {name} in {city}.",
                f"Good morning, {name}! What can I do for you?",
            ),
            (
                f"Goodbye, {name} has to go to {city}.",
                f"Goodbye, {name}! Have a nice trip to {city}.",
            ),
        )
        return Turn(f"talk {user}", user, answer, "No tool is needed.", "no_tool_call", name)

    # -- lists --------------------------------------------------------------

    def words(self, lo=2, hi=6):
        """Between `lo` and `hi` different words."""
        return self.rng.sample(WORDS, self.rng.randint(lo, hi))

    def list_problem(self):
        """One operation on a short list."""
        r, pick = self.rng, self.pick
        op = r.choice(
            [
                "reverse",
                "sort",
                "number",
                "upper",
                "copy",
                "unicode",
                "count",
                "json",
                "csv",
                "letters",
            ]
        )
        w = self.words()
        s = ", ".join(w)
        thought = "I work through the items one by one."
        if op == "reverse":
            user, ans = (
                pick("Reverse this list: {}", "Write this list backwards: {}").format(s),
                ", ".join(w[::-1]),
            )
        elif op == "sort":
            user, ans = (
                pick(
                    "Sort these words alphabetically: {}",
                    "Put these words in alphabetical order: {}",
                ).format(s),
                ", ".join(sorted(w)),
            )
        elif op == "number":
            n = r.sample(range(1, 100), r.randint(2, 6))
            s = ", ".join(map(str, n))
            user, ans = (
                pick(
                    "Sort these numbers: {}", "Order these numbers from small to large: {}"
                ).format(s),
                ", ".join(map(str, sorted(n))),
            )
        elif op == "upper":
            user, ans = (
                pick("Write in upper case: {}", "Convert to capital letters: {}").format(s),
                s.upper(),
            )
        elif op == "copy":
            user, ans = pick("Repeat exactly: {}", "Copy this list: {}").format(s), s
        elif op == "unicode":
            w = r.sample(UNICODE, r.randint(2, 4))
            s = " ".join(w)
            user, ans = pick("Repeat exactly: {}", "Say this again: {}").format(s), s
        elif op == "letters":
            s = " ".join(
                r.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(r.randint(4, 10))
            )
            user, ans = pick("Repeat exactly: {}", "Copy these characters: {}").format(s), s
        elif op == "count":
            w = self.words(2, 9)
            s = ", ".join(w)
            user, ans = (
                pick("How many items are in this list: {}", "Count the items: {}").format(s),
                f"There are {len(w)} items.",
            )
        elif op == "json":
            user, ans = (
                pick("Turn this list into JSON: {}", "Write this list as a JSON array: {}").format(
                    s
                ),
                json.dumps(w),
            )
        else:
            row = {
                "name": r.choice(NAMES),
                "age": r.randint(1, 99),
                "city": r.choice(CITIES),
                "item": r.choice(WORDS),
            }
            keys = r.sample(list(row), r.randint(2, 4))
            row = {k: row[k] for k in keys}
            s = ",".join(keys) + "\n" + ",".join(str(row[k]) for k in keys)
            user, ans = "Turn this CSV row into a JSON object:\n" + s, json.dumps(row)
        return Turn(f"{op} {s}", user, ans, thought, "exact", ans)

    # -- stories ------------------------------------------------------------

    def story(self, name, animal, place):
        """A short story with a beginning, some events and an end."""
        r, pick = self.rng, self.pick
        female = name in FEMALE
        he, his, him = ("she", "her", "her") if female else ("he", "his", "him")
        He = he.capitalize()
        friend = r.choice([n for n in NAMES if n != name])
        thing = f"{r.choice(ADJECTIVES)} {r.choice(NOUNS)}"
        mood = pick("happy", "curious", "tired", "brave", "hungry")
        lines = [
            pick(
                f"Once upon a time there was a {mood} {animal} called {name}.",
                f"In the {place} lived a {animal} named {name}, who was always {mood}.",
            ),
            pick(
                f"{name} loved the {place} more than anything else.",
                f"Every morning {he} walked through the {place} and sang.",
            ),
        ]
        events = [
            f"One day {name} found a {thing} near the {place}.",
            f"{He} showed the {thing} to {his} friend {friend}, "
            f"but {friend} had never seen one before.",
            f'"{pick("Where does it come from?", "Is it yours?", "May I keep it?")}" '
            f"asked {friend}.",
            pick(
                "Because it was raining, they waited under a tree until the sun came back.",
                "When the wind became stronger, they ran home and closed the door.",
            ),
            pick(
                f"They asked everyone in the {place}, and nobody knew the answer.",
                "They looked for the owner, although it was getting dark.",
            ),
            pick(
                f"In the evening an old woman came and said that the {thing} was hers.",
                f"At last they learned that the {thing} had been lost for {r.randint(2, 9)} years.",
            ),
            pick(
                f"{name} gave it back, and the woman thanked {him} with a bowl of soup.",
                f"So {name} put the {thing} where it belonged.",
            ),
        ]
        n = r.randint(3, len(events))
        lines += events[:2] + [events[i] for i in sorted(r.sample(range(2, len(events)), n - 2))]
        if r.random() < 0.4:
            other = f"{r.choice(ADJECTIVES)} {r.choice(NOUNS)}"
            city = r.choice(CITIES)
            lines += [
                pick(
                    f"A week later a letter from {city} arrived.",
                    f"Some weeks later a traveller from {city} came to the {place}.",
                ),
                pick(
                    f"It was about a {other}, which was even older than the {thing}.",
                    f"Somebody was looking for a {other}, and {name} wanted to help.",
                ),
                pick(
                    f"{name} and {friend} packed bread and cheese and started before sunrise.",
                    f'"We should go there," said {friend}, and {name} agreed at once.',
                ),
                pick(
                    "The way was long, but they told each other stories and laughed.",
                    "They walked for three days and slept under the stars.",
                ),
                pick(
                    f"When they came to {city}, the {other} was waiting for them.",
                    f"They found the {other} at last, "
                    "behind a door that nobody had opened for years.",
                ),
                pick(
                    f"{He} had never been so proud.",
                    f"{friend} danced with joy, and everybody sang.",
                ),
            ]
        lines.append(
            pick(
                f"Since that day {name} and {friend} have been the best of friends.",
                f"That night {name} slept well and dreamed of the {thing}.",
                f"And {he} never forgot that day in the {place}.",
            )
        )
        return " ".join(lines)

    def story_problem(self):
        r = self.rng
        name, animal = (
            r.choice(NAMES),
            r.choice("cat dog fox horse lion mouse rabbit sheep tiger wolf".split()),
        )
        place = r.choice("forest garden valley village harbour meadow castle desert".split())
        user = self.pick(
            f"Tell me a story about a {animal} named {name} in the {place}.",
            f"Write a short story: {name} the {animal}, set in the {place}.",
        )
        return Turn(
            f"story {name} {animal} {place}",
            user,
            self.story(name, animal, place),
            f"A story about {name} the {animal}.",
            "contains",
            [name, animal, place],
        )

    def describe_problem(self):
        r = self.rng
        city, day = r.choice(CITIES), r.choice(DAYS)
        thing = f"{r.choice(ADJECTIVES)} {r.choice(NOUNS)}"
        room = r.choice(ROOMS)
        lines = [
            f"The {thing} stands in the {room}.",
            self.pick(
                f"It was made in {city} many years ago.", f"Somebody brought it from {city}."
            ),
            self.pick(
                "It is neither large nor small.",
                "You can carry it with one hand.",
                "It is heavier than it looks.",
            ),
            self.pick(
                f"On {day} it is cleaned with a soft cloth.",
                f"Visitors come on {day} to look at it.",
            ),
            self.pick(
                "If you listen carefully, you can hear it move.",
                "When the light falls on it, it seems to glow.",
                "Those who own one rarely sell it.",
            ),
        ]
        user = self.pick(
            f"Describe the {thing} in the {room}.",
            f"Write a description of the {thing} in the {room}.",
        )
        return Turn(
            f"describe {thing} {room}",
            user,
            " ".join(lines),
            f"A description of the {thing}.",
            "contains",
            [thing, room],
        )

    # -- documents ----------------------------------------------------------

    def chat(self, task, turns, tools=None, system=None, context=None):
        """Chat document of several problems; the last answer is the target."""
        r = self.rng
        thinking = r.random() < (0.5 if task == "arithmetic" else 0.3)
        messages = [{"role": "system", "content": system}] if system else []
        for i, t in enumerate(turns):
            last = i + 1 == len(turns)
            user = f"{context}\n\n{t.user}" if context and i == 0 else t.user
            messages.append({"role": "user", "content": user})
            reason = {"reasoning_content": t.thought} if thinking and last else {}
            if t.calls:
                calls = [
                    {"type": "function", "function": {"name": n, "arguments": a}}
                    for n, a, _ in t.calls
                ]
                messages.append({"role": "assistant", "content": "", "tool_calls": calls, **reason})
                messages += [
                    {"role": "tool", "content": json.dumps(result)} for _, _, result in t.calls
                ]
                reason = {"reasoning_content": "I have the result."} if reason else {}
            answer = t.answer
            if task == "arithmetic" and not thinking:
                answer = f"{t.thought} {t.answer}"
            messages.append({"role": "assistant", "content": answer, **reason})
        return Sample(task, messages, tools, thinking, None, turns[-1].expected, turns[-1].check)

    def sample(self, task, max_tokens):
        """One document of a task, of roughly at most `max_tokens`."""
        r = self.rng
        system = (
            self.pick("You are Braid, a helpful assistant.", "You are a helpful assistant.")
            if r.random() < 0.15
            else None
        )
        if task == "arithmetic":
            if r.random() < 0.3:
                turns = [self.draw(self.sum_problem) for _ in range(r.randint(1, 6))]
            else:
                turns = [self.draw(self.word_problem) for _ in range(r.choice([1, 1, 1, 2]))]
            return self.chat(task, turns, system=system)
        if task in ("retrieval", "long"):
            budget = min(
                max(60, max_tokens - 130),
                r.choice([r.uniform(40, 150), r.uniform(60, 300), r.uniform(100, 900)]),
            )
            if task == "long" or (max_tokens > 1500 and r.random() < 0.6):
                budget = r.uniform(900, 1700)
            context, turns = self.questions(int(budget))
            return self.chat("retrieval", turns, system=system, context=context)
        if task == "tools":
            names = r.sample(list(TOOL_SCHEMAS), r.choice([1, 2, 2, 3]))
            makers = [getattr(self, "use_" + n) for n in names]
            turns = [
                self.draw(self.smalltalk if r.random() < 0.2 else r.choice(makers))
                for _ in range(r.choice([1, 1, 2]))
            ]
            if r.random() < 0.2:
                turns[-1] = self.two_calls(makers)
            if r.random() < 0.05:
                return self.chat(task, [self.draw(self.smalltalk) for _ in range(2)], system=system)
            return self.chat(task, turns, tools=[TOOL_SCHEMAS[n] for n in names], system=system)
        if task == "lists":
            turns = [self.draw(self.list_problem) for _ in range(r.choice([1, 1, 2, 3]))]
            return self.chat(task, turns, system=system)
        turn = self.draw(self.story_problem if r.random() < 0.7 else self.describe_problem)
        if r.random() < 0.4:
            return Sample("text", text=turn.answer)
        return self.chat(task, [turn], system=system)

    def questions(self, budget):
        """Notes and turns about them; held-out split: only the last turn's fact is held out."""
        r = self.rng
        while True:
            context, turn = self.retrieval(budget)
            probes = [turn() for _ in range(48)]
            wanted = [t for t in probes if held_out(t.key) == self.heldout]
            if wanted and self.heldout:
                return context, probes[: r.choice([0, 0, 1, 2])] + [wanted[0]]
            if wanted:
                return context, r.choices(wanted, k=r.choice([1, 2, 3, 4, 6, 8]))


def _schema(name, description, **params):
    props = {k: {"type": t} for k, t in params.items()}
    function = {
        "name": name,
        "description": description,
        "parameters": {"type": "object", "properties": props, "required": list(params)},
    }
    return {"type": "function", "function": function}


TOOL_SCHEMAS = {
    "get_weather": _schema(
        "get_weather", "Get the weather of a city.", city="string", day="string"
    ),
    "calculate": _schema("calculate", "Evaluate an expression.", expression="string"),
    "search": _schema("search", "Search the web.", query="string"),
    "set_light": _schema(
        "set_light", "Switch a light.", room="string", state="string", level="integer"
    ),
    "add_event": _schema(
        "add_event", "Add an event to the calendar.", title="string", day="string", time="string"
    ),
    "convert_units": _schema(
        "convert_units", "Convert a quantity.", value="number", **{"from": "string", "to": "string"}
    ),
}

# Share of documents by task; documents differ in length, see the README.
MIX = {"arithmetic": 0.32, "retrieval": 0.12, "tools": 0.2, "lists": 0.28, "text": 0.08}


def stream(seed, max_tokens=lambda: 256):
    """Endless training documents; `max_tokens` may change while it runs."""
    world = World(seed)
    names, weights = list(MIX), list(MIX.values())
    while True:
        yield world.sample(world.rng.choices(names, weights)[0], max_tokens())


def render(sample):
    """Token segments of a document as (text, is_target); equals the chat template."""
    if sample.text is not None:
        return [(sample.text + "<|endoftext|>", True)]
    out, text = [], ""
    messages, tools = sample.messages, sample.tools
    system = messages[0]["content"] if messages[0]["role"] == "system" else ""
    if tools:
        text += "<|im_start|>system\n# Tools\n\nYou may call these functions:\n<tools>"
        text += "".join("\n" + json.dumps(t, ensure_ascii=False) for t in tools)
        text += "\n</tools>\n\nTo call one, write:\n"
        text += '<tool_call>\n{"name": NAME, "arguments": ARGUMENTS}\n</tool_call>'
        text += f"\n\n{system}<|im_end|>\n" if system else "<|im_end|>\n"
    elif system:
        text += f"<|im_start|>system\n{system}<|im_end|>\n"
    last_query = max(i for i, m in enumerate(messages) if m["role"] == "user")
    for i, m in enumerate(messages):
        role, content = m["role"], m["content"].strip()
        if role == "user":
            text += f"<|im_start|>user\n{content}<|im_end|>\n"
        elif role == "tool":
            if messages[i - 1]["role"] != "tool":
                text += "<|im_start|>user"
            text += f"\n<tool_response>\n{content}\n</tool_response>"
            if i + 1 == len(messages) or messages[i + 1]["role"] != "tool":
                text += "<|im_end|>\n"
        elif role == "assistant":
            text += "<|im_start|>assistant\n"
            target = ""
            if i > last_query:
                reason = m.get("reasoning_content", "")
                text += "<think>\n" if reason else "<think>\n\n</think>\n\n"
                target += f"{reason}\n</think>\n\n" if reason else ""
            target += content
            for j, call in enumerate(m.get("tool_calls", [])):
                body = json.dumps(call["function"], ensure_ascii=False)
                target += ("\n" if content or j else "") + f"<tool_call>\n{body}\n</tool_call>"
            # Bare answers of earlier arithmetic turns hide their working: not a target.
            learn = i > last_query or not (sample.thinking and sample.task == "arithmetic")
            out += [(text, False), (target + "<|im_end|>", learn)]
            text = "\n"
    return out


def evaluation_set(task, count, seed, seen=()):
    """Held-out problems as dictionaries ready for JSON, none twice and none of `seen`."""
    world, items, seen = World(seed, heldout=True), [], set(seen)
    while len(items) < count:
        s = world.sample(task, 1000)
        item = {"id": f"{task}-{len(items)}", "task": task}
        if s.text is not None:
            item |= {"text": s.text, "check": "perplexity", "answer": None}
        else:
            messages = s.messages[:-1]
            answer, check = s.answer, s.check
            if check == "tool_call":
                if world.rng.random() < 0.25:  # ask for the answer after the tool's response
                    answer, check = s.messages[-1]["content"], "exact"
                else:
                    messages = messages[
                        : max(i for i, m in enumerate(messages) if m["role"] == "user") + 1
                    ]
            item |= {"messages": messages, "thinking": s.thinking, "check": check, "answer": answer}
            if s.tools:
                item["tools"] = s.tools
        if problem(item) not in seen:
            seen.add(problem(item))
            items.append(item)
    return items


def problem(item):
    """What makes two evaluation items the same."""
    return item.get("text") or json.dumps(item["messages"])


def main():
    """Write the held-out sets."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--seed", type=int, default=1_000_001)
    p.add_argument("--count", type=int, default=200)
    p.add_argument(
        "--exclude",
        type=pathlib.Path,
        help="folder of another set that shares no item with this one",
    )
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for i, task in enumerate(TASKS + ["long"]):
        seen = (
            [problem(json.loads(line)) for line in open(args.exclude / f"{task}.jsonl")]
            if args.exclude
            else []
        )
        with open(args.out / f"{task}.jsonl", "w", encoding="utf-8") as f:
            for item in evaluation_set(
                task, args.count if task in TASKS else args.count // 5, args.seed + i, seen
            ):
                f.write(json.dumps(item, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
