"""The chat of `braid run` in a terminal: what it shows, and that neither Ctrl-C at the prompt nor a
message that is too long ends it."""

import os
import pty
import select
import signal
import subprocess
import termios
import time

from conftest import BINARY


class Terminal:
    """A program whose input and output are a terminal without echo."""

    def __init__(self, *words):
        self.ours, theirs = pty.openpty()
        mode = termios.tcgetattr(theirs)
        mode[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, mode)
        self.process = subprocess.Popen([BINARY, *map(str, words)], stdin=theirs, stdout=theirs,
                                        stderr=theirs)  # fmt: skip
        os.close(theirs)
        self.unread = b""

    def say(self, text):
        os.write(self.ours, text.encode() + b"\n")

    def until(self, text, seconds=120):
        """What it shows up to the text, which must come."""
        end, wanted = time.monotonic() + seconds, text.encode()
        while wanted not in self.unread:
            assert time.monotonic() < end, self.unread.decode(errors="replace")
            if select.select([self.ours], [], [], 1)[0]:
                self.unread += os.read(self.ours, 4096)
        shown, self.unread = self.unread.split(wanted, 1)
        return shown.decode(errors="replace")


def test_a_chat_goes_on_until_it_is_left(tiny):
    chat = Terminal("run", tiny, "--temperature", "0", "--max-model-len", "512")
    prompt = "\033[1m>\033[0m "
    try:
        plan = chat.until("/reset   forget the conversation")
        assert "sequences of at most 512 tokens" in plan
        chat.until(prompt)
        chat.say("How much is 62 + 12?")
        thought, answer = chat.until(" tokens, ").split("\033[0m\r\n\r\n")
        assert thought.startswith("\033[2m") and thought.count("\033[2m") == 1
        assert "74" in answer
        chat.until(" per second]\033[0m\r\n" + prompt)
        chat.process.send_signal(signal.SIGINT)
        chat.until("(/exit or Ctrl-D leaves)\r\n" + prompt)
        chat.say("/help")
        chat.until("Ctrl-C stops an answer.\r\n" + prompt)
        chat.say("a b " * 300)
        assert "512" in chat.until(prompt)
        chat.say("How much is 81 - 20?")  # the message before it is forgotten
        assert "61" in chat.until(" per second]\033[0m\r\n" + prompt)
        chat.say("/reset")
        chat.until("(forgotten)\r\n" + prompt)
        chat.say("/exit")
        assert chat.process.wait(60) == 0
    finally:
        chat.process.kill()
        chat.process.wait()
        os.close(chat.ours)
