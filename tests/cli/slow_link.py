"""A slow link between this host and a network namespace: a TUN device at each end, and a process
that passes packets on after a delay. Needs root. As a program: slow_link.py NAMESPACE DEVICE
MILLISECONDS; each line of standard input, `cut` or `mend`, is answered with the packets that
passed so far."""

import collections
import contextlib
import ctypes
import fcntl
import os
import pathlib
import select
import struct
import subprocess
import sys
import time

SET_DEVICE, TUN, NO_HEADER, NEW_NETWORK = 0x400454CA, 0x0001, 0x1000, 0x40000000
PACKET_BYTES, QUEUED_MAX = 65536, 20000


def device(name):
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, SET_DEVICE, struct.pack("16sH", name.encode(), TUN | NO_HEADER))
    return end


def relay(namespace, name, milliseconds):
    ends = [device(name)]
    with open(f"/run/netns/{namespace}") as there:
        if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), NEW_NETWORK) != 0:
            sys.exit(f"no network namespace {namespace}: error {ctypes.get_errno()}")
    ends.append(device(name))
    print("0", flush=True)
    queues = [collections.deque(), collections.deque()]  # of packets from each end: (due, packet)
    passed, cut = 0, False
    while True:
        dues = [queue[0][0] for queue in queues if queue]
        wait = max(0, min(dues) - time.monotonic()) if dues else None
        readable, _, _ = select.select([*ends, sys.stdin], [], [], wait)
        now = time.monotonic()
        if sys.stdin in readable:
            word = sys.stdin.readline().strip()
            if not word:
                return
            cut = word == "cut"
            if cut:
                for queue in queues:
                    queue.clear()
            print(passed, flush=True)
        for end, queue, other in zip(ends, queues, reversed(ends), strict=True):
            if end in readable:
                with contextlib.suppress(BlockingIOError, OSError):
                    while len(queue) < QUEUED_MAX:
                        packet = os.read(end, PACKET_BYTES)
                        if not cut:
                            queue.append((now + milliseconds / 1000, packet))
            while queue and queue[0][0] <= now:
                with contextlib.suppress(OSError):  # as a device that is down or full: it is lost
                    os.write(other, queue.popleft()[1])
                    passed += 1


class SlowLink:
    """The process, and the addresses of its ends."""

    def __init__(self, namespace, here, there, milliseconds):
        self.namespace, self.name = namespace, f"slow{os.getpid()}"
        self.process = subprocess.Popen(
            [sys.executable, pathlib.Path(__file__), namespace, self.name, str(milliseconds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "0\n", "no TUN devices"
        for prefix, own in (([], here), (["ip", "netns", "exec", namespace], there)):
            for words in (["address", "add", f"{own}/24", "dev", self.name],
                          ["link", "set", self.name, "up"]):
                subprocess.run([*prefix, "ip", *words], check=True, capture_output=True)

    def tell(self, word):
        """How many packets passed so far."""
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)


if __name__ == "__main__":
    relay(sys.argv[1], sys.argv[2], int(sys.argv[3]))
