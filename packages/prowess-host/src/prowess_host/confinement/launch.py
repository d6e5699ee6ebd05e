"""Starts a program under limits: `python -I -S launch.py SPEC PROGRAM...`. A separate script that uses only the standard library.

It sets every limit in the spec, then executes the program. A step that fails ends it, so that nothing runs without its
limits. All decisions are made in `confine`.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import resource
import stat
import sys
from typing import Any, NoReturn

__all__ = ["FAILED", "MARK", "main"]

FAILED = 97
"""The exit code of a launch that could not set a limit."""
MARK = "prowess: the limits of the skill could not be set: "

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_SET_SECUREBITS, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _SET_SECCOMP, _CAP_AMBIENT = 28, 24, 38, 22, 47
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
_NO_ROOT_LOCKED = 0x2F
"""SECBIT_NOROOT, SECBIT_NO_SETUID_FIXUP and SECBIT_KEEP_CAPS's lock, each locked: root has no powers of its own."""
_MOST_CAPABILITIES = 64

_libc = ctypes.CDLL(None, use_errno=True)


def _called(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _syscall(number: int, *args: Any) -> int:
    return int(_libc.syscall(ctypes.c_long(number), *args))


def _prctl(option: int, *args: int) -> int:
    return int(_libc.prctl(option, *(ctypes.c_ulong(each) for each in (*args, 0, 0, 0, 0)[:4])))


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def _limit_resources(limits: dict[str, int]) -> None:
    for name, most in limits.items():
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        last = most + 1 if name == "RLIMIT_CPU" and most != hard else most  # the soft limit sends SIGXCPU first
        resource.setrlimit(which, (most, last))


def _join_groups(files: list[str]) -> None:
    """Join the control groups that the host has made."""
    for file in files:
        with open(file, "w", encoding="ascii") as procs:  # noqa: PTH123 - pathlib is not worth its import here
            procs.write(str(os.getpid()))


def _close_all_but(kept: list[int]) -> None:
    """Close descriptors that were inherited by mistake."""
    below = 3
    for fd in [*sorted(kept), os.sysconf("SC_OPEN_MAX")]:
        os.closerange(below, fd)
        below = fd + 1


def _restrict_files(rules: dict[str, Any]) -> None:
    attributes = _Ruleset(rules["handled"], rules["network"], rules["scoped"])
    ruleset = _called(_syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0), "Landlock")
    for path, folder, other in rules["paths"]:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # it does not exist, so there is nothing to allow
            continue
        beneath = _PathBeneath(folder if stat.S_ISDIR(os.fstat(fd).st_mode) else other, fd)
        _called(_syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(beneath), 0), f"Landlock: {path}")
        os.close(fd)
    _called(_syscall(_RESTRICT_SELF, ruleset, 0), "Landlock")
    os.close(ruleset)


def _drop_capabilities() -> None:
    """Drop the capabilities of root permanently, also for child processes."""
    if os.geteuid() == 0 or os.getuid() == 0:
        _prctl(_SET_SECUREBITS, _NO_ROOT_LOCKED)  # fails for a root without capabilities
    for capability in range(_MOST_CAPABILITIES):
        _prctl(_CAPBSET_DROP, capability)  # fails without capabilities
    _prctl(_CAP_AMBIENT, 4, 0)
    header = _CapabilityHeader(0x20080522, 0)
    _called(_libc.capset(ctypes.byref(header), (ctypes.c_uint32 * 6)()), "capset")


def _restrict_calls(program: bytes, asks: int | None) -> None:
    """Install the filter. Its questions go to the host, over the socket `asks`."""
    steps = _Program(len(program) // 8, program)
    if asks is None:
        _called(_libc.prctl(_SET_SECCOMP, 2, ctypes.byref(steps), 0, 0), "seccomp")
        return
    import socket  # only here: some milliseconds

    flags = _NEW_LISTENER | _WAIT_KILLABLE
    listener = _called(_syscall(_SECCOMP[os.uname().machine], 1, flags, ctypes.byref(steps)), "seccomp")
    with socket.socket(fileno=asks) as host:
        socket.send_fds(host, [b"x"], [listener])
    os.close(listener)


def main(argv: list[str]) -> NoReturn:
    """Set the limits, then execute the program."""
    try:
        spec = json.loads(argv[0])
        asks = spec.get("asks")
        _close_all_but([*spec["kept"], *([asks] if asks is not None else [])])
        _join_groups(spec.get("groups", []))
        _limit_resources(spec["resources"])
        if "files" in spec:
            _called(_prctl(_SET_NO_NEW_PRIVS, 1), "no_new_privs")
            _restrict_files(spec["files"])
            _drop_capabilities()
            own = (spec["own_pid"].to_bytes(4, "little"), os.getpid().to_bytes(4, "little"))
            _restrict_calls(base64.b64decode(spec["calls"]).replace(*own), asks)
        os.execve(argv[1], argv[1:], os.environ)  # noqa: S606 - that is its job
    except BaseException as error:  # noqa: BLE001 - after any error, the program must not run
        os.write(2, f"{MARK}{error}\n".encode("utf-8", "backslashreplace"))
    os._exit(FAILED)


if __name__ == "__main__":
    main(sys.argv[1:])
