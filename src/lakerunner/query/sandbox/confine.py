"""Confine this process to what running SQL needs: no other files, no network, no other processes, bounded memory.

Input: the sandbox's own directory, and how many more bytes of data it may allocate. Output: the names of protections
that this kernel lacks. Invariant: the process itself cannot undo any of it. Call it while the process has one thread:
Landlock and seccomp bind the calling thread and those that it starts.

    Landlock     `files` may be read, `spill` be read and written; every other path is closed, as are TCP and signals
                 to processes outside
    seccomp      no sockets, no new programs or processes, no looking into other processes
    RLIMIT_DATA  memory: an allocation beyond it fails, and DuckDB reports that as an error. RLIMIT_AS would count
                 what allocators reserve and never use
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
from pathlib import Path

FILES, SPILL = "files", "spill"
_OPEN_FILES = 4096
_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SIGKILL = 9

_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION, _RULE_PATH_BENEATH = 1, 1
_FS_OF_ABI = {1: 13, 2: 14, 3: 15, 5: 16}  # the number of file rights that each ABI version knows
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG, _TRUNCATE = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 14
_READ = _READ_FILE | _READ_DIR
_READ_WRITE = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _TRUNCATE
_NET_ABI, _ALL_NET = 4, 0b11
_SCOPE_ABI, _ALL_SCOPES = 6, 0b11

# The audit code of the architecture (AUDIT_ARCH_*), then the numbers of denied system calls.
_X86_64 = 0xC000003E, {
    "socket": 41, "connect": 42, "accept": 43, "bind": 49, "listen": 50, "socketpair": 53, "clone": 56, "fork": 57,
    "vfork": 58, "execve": 59, "kill": 62, "ptrace": 101, "personality": 135, "setrlimit": 160, "mount": 165,
    "tkill": 200, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "accept4": 288,
    "perf_event_open": 298, "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310,
    "process_vm_writev": 311, "bpf": 321, "execveat": 322, "userfaultfd": 323,
}  # fmt: skip
_AARCH64 = 0xC00000B7, {
    "mount": 40, "personality": 92, "unshare": 97, "ptrace": 117, "kill": 129, "tkill": 130, "setrlimit": 164,
    "socket": 198, "socketpair": 199, "bind": 200, "listen": 201, "accept": 202, "connect": 203, "add_key": 217,
    "request_key": 218, "keyctl": 219, "clone": 220, "execve": 221, "perf_event_open": 241, "accept4": 242,
    "open_by_handle_at": 265, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "bpf": 280,
    "execveat": 281, "userfaultfd": 282,
}  # fmt: skip
_EVERYWHERE = {"pidfd_send_signal": 424, "io_uring_setup": 425, "pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438}
_SYSTEM_CALLS = {"x86_64": _X86_64, "aarch64": _AARCH64}
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_CLONE_THREAD = 0x10000
_X32 = 0x40000000  # the x32 ABI: a second table of system calls on x86_64, which would evade the filter


def die_with_parent() -> None:
    """Have the kernel kill this process when the process that forked it ends, for whatever reason."""
    _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def confine(directory: Path, data_bytes: int) -> list[str]:
    """Apply all protections and return the names of those that are unavailable. `data_bytes` may be allocated beyond
    what the process holds now."""
    data_bytes += int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]  # of a Python worker of Spark, which no child may raise
    data_bytes = data_bytes if hard == resource.RLIM_INFINITY else min(data_bytes, hard)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would contain telemetry
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, data_bytes))
    open_files = min(_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    steps = {"landlock": lambda: _restrict_files(directory), "seccomp": _restrict_calls}
    return [name for name, step in steps.items() if not step()]


def _restrict_files(directory: Path) -> bool:
    abi = _libc.syscall(_LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION)
    if abi < 1:
        return False
    rights = (1 << max(count for version, count in _FS_OF_ABI.items() if version <= abi)) - 1
    attributes = struct.pack("=Q", rights)
    if abi >= _NET_ABI:
        attributes += struct.pack("=Q", _ALL_NET)
    if abi >= _SCOPE_ABI:
        attributes += struct.pack("=Q", _ALL_SCOPES)
    ruleset = _libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0)
    if ruleset < 0:
        return False
    try:
        for name, allowed in ((FILES, _READ), (SPILL, _READ_WRITE)):
            path = os.open(directory / name, os.O_PATH | os.O_CLOEXEC)
            rule = struct.pack("=Qi", allowed & rights, path)
            failed = _libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
            os.close(path)
            if failed:
                return False
        return bool(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _restrict_calls() -> bool:
    known = _SYSTEM_CALLS.get(platform.machine())
    if known is None:
        return False
    program = _filter(*known)
    code = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
    head = struct.pack("@HP", len(program), ctypes.addressof(code))
    return bool(_libc.prctl(_PR_SET_SECCOMP, 2, head, 0, 0) == 0)


def _filter(architecture: int, numbers: dict[str, int]) -> list[bytes]:
    """Return the BPF program that the kernel runs at each system call. Threads may be started, processes may not."""
    number, first_argument, arch = 0, 16, 4  # offsets in struct seccomp_data
    denied = [n for name, n in (numbers | _EVERYWHERE).items() if name not in ("clone", "clone3")]
    program = [_load(arch), _jump(_EQUAL, architecture, 1, 0), _return(_KILL_PROCESS), _load(number)]
    program += [_jump(_AT_LEAST, _X32, 0, 1), _return(_ERRNO | _EPERM)]
    for one in denied:
        program += [_jump(_EQUAL, one, 0, 1), _return(_ERRNO | _EPERM)]
    # The flags of clone3 are in memory, which a filter cannot read. ENOSYS makes the C library fall back to clone.
    program += [_jump(_EQUAL, _EVERYWHERE["clone3"], 0, 1), _return(_ERRNO | _ENOSYS)]
    program += [_jump(_EQUAL, numbers["clone"], 0, 3), _load(first_argument)]
    program += [_jump(_ANY_BIT, _CLONE_THREAD, 1, 0), _return(_ERRNO | _EPERM), _return(_ALLOW)]
    return program


_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45


def _load(offset: int) -> bytes:
    return struct.pack("=HBBI", 0x20, 0, 0, offset)


def _jump(test: int, value: int, then: int, otherwise: int) -> bytes:
    return struct.pack("=HBBI", test, then, otherwise, value)


def _return(verdict: int) -> bytes:
    return struct.pack("=HBBI", 0x06, 0, 0, verdict)
