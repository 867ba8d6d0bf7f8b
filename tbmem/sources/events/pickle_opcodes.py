"""Looks through the opcodes of a pickle for what makes loading it costly, without loading it."""

from __future__ import annotations

import struct

import numpy as np

_FIXED = {
    **dict.fromkeys(b"(.0123)]}abdelostuNR\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x94\x97\x98", 0),
    **dict.fromkeys(b"Khq\x80", 1),
    **dict.fromkeys(b"M", 2),
    **dict.fromkeys(b"Jjr", 4),
    **dict.fromkeys(b"G\x95", 8),
}
"""Bytes after an opcode. Opcodes that request code or other objects are in no table: there, loading ends as well."""
_LINES = frozenset(b"FILSVgp")
"""Opcodes with a line after them."""
_COUNTED = {
    **dict.fromkeys(b"U\x8a\x8cC", struct.Struct("<B")),
    **dict.fromkeys(b"TX\x8bB", struct.Struct("<I")),
    **dict.fromkeys(b"\x8d\x8e\x96", struct.Struct("<Q")),
}
"""How the number of bytes after an opcode is written."""
_SCALARS = frozenset(b"KMJNG\x88\x89\x8a\x8bIFLSTUVX\x8c\x8d")
_PUTS = frozenset(b"qrp\x94")
_SETS = frozenset(b"\x8f\x90\x91")
_NUMBERS = frozenset(b"\x8a\x8bIL")
_LONG1, _LONG4 = 0x8A, 0x8B
_TEN, _PART = np.uint8(10), 32 << 10
_FIRST_OPCODE = 0x28
"""What follows is most often an opcode, and begins no number of which many have room."""
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_MARK, _TUPLE, _STOP, _PUT, _MEMOIZE = b"(t.p\x94"
_MATTER = _SCALARS | _PUTS | _SETS | _TUPLES.keys() | {_MARK, _TUPLE, _STOP}
_OTHERS = [1 + _FIXED[code] if code in _FIXED and code not in _MATTER else 0 for code in range(256)]
"""Length of the opcodes that neither are scalars nor matter themselves; 0 for those that do."""
_LONGEST_NUMBER = 24
"""Bytes of the opcode of a number of 64 bits, in digits."""
_LONGEST_TUPLE = 8


def check_opcodes(data: bytes) -> str | None:
    """What makes a pickle costly, as the end of a sentence; ``None`` for a harmless one.

    Refused are an index of the memo beyond what was pickled so far, whole numbers of much more than 64 bits (as many as
    one likes have equal hashes), sets, and tuples of anything but a few numbers and strings (the hash of nested ones
    may take for ever). An unknown or cut off opcode ends the search: there, loading ends as well.
    """
    at, end = 0, len(data)
    others = _OTHERS
    scalars, since_mark = 0, False
    while at < end:
        code = data[at]
        if length := others[code]:
            at += length
            scalars, since_mark = 0, False
            continue
        if code == _MEMOIZE:
            at += 1
            continue
        following = _following(data, at)
        if following < 0:
            return None
        if code in _PUTS:
            index = _index(data[at:following])
            if index > at:
                return f"has the index {index} in its memo after {at} bytes"
        elif code in _SCALARS:
            if code in _NUMBERS and _is_large(data, at, following):
                return f"has a number of {following - at} bytes"
            # what follows a mark, with nothing but scalars between, belongs to that mark
            scalars += 1
        elif code in _SETS:
            return "has a set"
        else:
            if code in _TUPLES or code == _TUPLE:
                count = _TUPLES.get(code, scalars)
                if scalars < count or count > _LONGEST_TUPLE or (code == _TUPLE and not since_mark):
                    return "has a tuple of other things than a few numbers or strings"
            scalars, since_mark = 0, code == _MARK
        at = following
    return None


def _is_large(data: bytes, at: int, following: int) -> bool:
    """Whether a number has more than 64 bits; one without sign has a ninth byte, which is zero."""
    size = following - at
    if data[at] != _LONG1:
        return size > _LONGEST_NUMBER
    return size > 11 or any(data[at + 10 : following])


def may_collide(data: bytes) -> int:
    """At most how many whole numbers of more than 72 bits a part of a pickle may hold.

    What looks like one may lie within a text or another number: snapshots of torch have one in some hundred bytes.
    """
    codes, count = np.frombuffer(data, np.uint8), 0
    for begin in range(0, len(codes), _PART):  # small parts stay in the processor's cache
        part = codes[begin : begin + _PART + 1]
        is_number = (part[:-1] | 1) == _LONG4
        is_number &= (part[1:] - _TEN) < _FIRST_OPCODE - 10  # a length below ten becomes a large one
        count += int(np.count_nonzero(is_number))
    return count


def _following(data: bytes, at: int) -> int:
    """Where the opcode after the one at a position begins; -1 if loading ends here."""
    code = data[at]
    if code == _STOP:
        return -1
    if code in _FIXED:
        return at + 1 + _FIXED[code]
    if code in _LINES:
        return data.find(b"\n", at) + 1 or -1
    if code in _COUNTED and at + 1 + _COUNTED[code].size <= len(data):
        size = _COUNTED[code]
        return at + 1 + size.size + int(size.unpack_from(data, at + 1)[0])
    return -1


def _index(opcode: bytes) -> int:
    """Index of an opcode that puts a value into the memo; 0 where the unpickler counts, or refuses."""
    if opcode[0] == _PUT:
        digits = opcode[1:-1].strip()
        return int(digits) if digits.isdigit() and len(digits) <= _LONGEST_NUMBER else int(bool(digits)) << 62
    return int.from_bytes(opcode[1:], "little")
