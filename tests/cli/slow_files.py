"""A folder whose files are slow, fail and run out of room as a test says: a file system in user
space that passes everything on to another folder. It speaks the kernel's FUSE protocol itself
(linux/fuse.h), so it needs root and /dev/fuse and no library."""

import contextlib
import ctypes
import errno
import os
import random
import stat
import struct
import threading
import time

THREADS = 16
HEADER = struct.Struct("<IIQQIIIHH")  # length, opcode, unique, node, uid, gid, pid
MOST = 1 << 17  # bytes of a read or write
# Of an open file: every read and write comes here, or the kernel has a cache, as for a disk.
DIRECT_IO, KEEP_CACHE = 1, 2
ASYNC_READ = 1  # of the file system: several reads of a file at the same time
DETACH = 2


class Faults:
    """What happens to reads and writes of files; may change at any time."""

    def __init__(self, seed=1):
        self.read_seconds = self.write_seconds = 0.0
        self.read_errors = self.write_errors = 0.0  # of 1
        self.full = False
        self.cached = False  # the kernel keeps in memory what it reads of files opened from now on
        self.reads = self.bytes_read = self.writes = self.failed = 0
        self.draw = random.Random(seed)

    def read(self, size):
        self.reads += 1
        self.bytes_read += size
        time.sleep(self.read_seconds * self.draw.random() * 2)
        self._fail(self.read_errors)

    def write(self):
        self.writes += 1
        time.sleep(self.write_seconds * self.draw.random() * 2)
        if self.full:
            self.failed += 1
            raise OSError(errno.ENOSPC, "full")
        self._fail(self.write_errors)

    def _fail(self, share):
        if self.draw.random() < share:
            self.failed += 1
            raise OSError(errno.EIO, "broken")


class SlowFiles:
    def __init__(self, behind, faults):
        self.faults = faults
        self.paths = {1: str(behind)}
        self.nodes = {str(behind): 1}
        self.lock = threading.Lock()
        self.fd = os.open("/dev/fuse", os.O_RDWR)

    def serve(self):
        buffer = MOST + 4096
        while True:
            try:
                message = os.read(self.fd, buffer)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return  # ENODEV: unmounted
            _, opcode, unique, node, *_ = HEADER.unpack_from(message)
            handler = self.HANDLERS.get(opcode)
            if opcode in (2, 36, 42):  # forget, interrupt: no answer
                continue
            try:
                if handler is None:
                    raise OSError(errno.ENOSYS, "")
                answer, code = handler(self, node, message[HEADER.size:]), 0
            except OSError as error:
                answer, code = b"", error.errno
            with contextlib.suppress(OSError):
                os.write(self.fd, struct.pack("<IiQ", 16 + len(answer), -code, unique) + answer)

    def path(self, node, name=b""):
        with self.lock:
            path = self.paths[node]
        return os.path.join(path, name.split(b"\0")[0].decode()) if name else path

    def entry(self, path):
        found = os.lstat(path)
        with self.lock:
            node = self.nodes.setdefault(path, len(self.nodes) + 1)
            self.paths[node] = path
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + self.attributes(found)

    @staticmethod
    def attributes(s):
        times = [s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns]
        return struct.pack("<6Q10I", s.st_ino, s.st_size, s.st_blocks,
                           *(t // 10**9 for t in times), *(t % 10**9 for t in times), s.st_mode,
                           s.st_nlink, s.st_uid, s.st_gid, 0, 4096, 0)  # fmt: skip

    def init(self, _, body):
        ahead = struct.unpack_from("<III", body)[2]
        return struct.pack("<IIIIHHIIHHI7I", 7, 31, ahead, ASYNC_READ, THREADS, THREADS, MOST, 1, 0,
                           0, 0, *[0] * 7)  # fmt: skip

    def get_attributes(self, node, _):
        return struct.pack("<QII", 0, 0, 0) + self.attributes(os.lstat(self.path(node)))

    def set_attributes(self, node, body):
        valid, _, _, size, *_ = struct.unpack_from("<IIQQ", body)
        mode = struct.unpack_from("<I", body, 68)[0]
        path = self.path(node)
        if valid & 1:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & 8:
            os.truncate(path, size)
        return self.get_attributes(node, body)

    def open_flags(self):
        return KEEP_CACHE if self.faults.cached else DIRECT_IO

    def open(self, node, body):
        flags = struct.unpack_from("<I", body)[0] & (os.O_ACCMODE | os.O_TRUNC)
        return struct.pack("<QII", os.open(self.path(node), flags), self.open_flags(), 0)

    def create(self, node, body):
        flags, mode, *_ = struct.unpack_from("<IIII", body)
        path = self.path(node, body[16:])
        handle = os.open(path, flags | os.O_CREAT, mode)
        return self.entry(path) + struct.pack("<QII", handle, self.open_flags(), 0)

    def read(self, _, body):
        handle, offset, size = struct.unpack_from("<QQI", body)
        self.faults.read(size)
        return os.pread(handle, size, offset)

    def write(self, _, body):
        handle, offset, size = struct.unpack_from("<QQI", body)
        self.faults.write()
        return struct.pack("<II", os.pwrite(handle, body[40:40 + size], offset), 0)

    def release(self, _, body):
        os.close(struct.unpack_from("<Q", body)[0])
        return b""

    def read_folder(self, node, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        answer = b""
        for i, name in enumerate(sorted(os.listdir(self.path(node)))[offset:], offset + 1):
            text = name.encode()
            entry = struct.pack("<QQII", i, i, len(text), 0) + text
            entry += b"\0" * (-len(entry) % 8)
            if len(answer) + len(entry) > size:
                break
            answer += entry
        return answer

    def rename(self, node, body, names_at=8):
        to = struct.unpack_from("<Q", body)[0]
        old, new = body[names_at:].split(b"\0")[:2]
        os.rename(self.path(node, old), self.path(to, new))
        return b""

    HANDLERS = {
        1: lambda s, node, body: s.entry(s.path(node, body)),
        3: get_attributes,
        4: set_attributes,
        9: lambda s, node, body: (os.mkdir(s.path(node, body[8:]), 0o700),
                                  s.entry(s.path(node, body[8:])))[1],
        10: lambda s, node, body: os.unlink(s.path(node, body)) or b"",
        11: lambda s, node, body: os.rmdir(s.path(node, body)) or b"",
        12: rename,
        14: open,
        15: read,
        16: write,
        17: lambda s, node, body: struct.pack("<5Q10I", 1 << 30, 1 << 30, 1 << 30, 0, 0, 4096, 255,
                                              4096, *[0] * 7),
        18: release,
        20: lambda s, node, body: b"",
        25: lambda s, node, body: b"",
        26: init,
        27: lambda s, node, body: struct.pack("<QII", 0, 0, 0),
        28: read_folder,
        29: lambda s, node, body: b"",
        34: lambda s, node, body: b"",
        35: create,
        45: lambda s, node, body: s.rename(node, body, 16),
    }  # fmt: skip


@contextlib.contextmanager
def slow_files(folder):
    """(where files are slow, their faults); `folder` is empty. None where FUSE cannot be used."""
    behind, at = folder / "behind", folder / "slow"
    behind.mkdir()
    at.mkdir()
    faults = Faults()
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        files = SlowFiles(behind, faults)
    except OSError:
        yield None
        return
    options = f"fd={files.fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"braid", os.fsencode(at), b"fuse", 6, options) != 0:
        os.close(files.fd)
        yield None
        return
    threads = [threading.Thread(target=files.serve, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield at, faults
    finally:
        libc.umount2(os.fsencode(at), DETACH)
        os.close(files.fd)
