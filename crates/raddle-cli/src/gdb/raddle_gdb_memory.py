# Memory and symbols: the first part of the script for gdb.
#
# A program that links the explicit API carries the runtime's library in itself, and maps a copy of
# it that has no file. gdb then knows neither the symbols nor the unwind tables of the runtime. The
# same bytes are in the file of the program, or of its library: there they are looked for, by their
# first page.

import mmap
import os
import re
import struct

import gdb

CARRIED = "/memfd:raddle (deleted)"
PAGE_BYTES = 4096
LIBRARY_BYTES_MAX = 1 << 28
MAPPING = re.compile(r"\s*(0x\w+)\s+0x\w+\s+0x\w+\s+(0x\w+)\s+(?:[-rwxps]{4}\s+)?(/.*)")


def read(address, size):
    return bytes(gdb.selected_inferior().read_memory(address, size))


def word(address):
    return struct.unpack("<Q", read(address, 8))[0]


def half(address):
    return struct.unpack("<I", read(address, 4))[0]


def symbol(name):
    """The address of a symbol, whichever language the selected frame has."""
    language = gdb.parameter("language")
    gdb.execute("set language c", to_string=True)
    try:
        return evaluate(name) or (add_carried() and evaluate(name)) or unknown()
    finally:
        gdb.execute("set language " + language, to_string=True)


def evaluate(name):
    try:
        return int(gdb.parse_and_eval("(unsigned long)&" + name))
    except gdb.error:
        return 0


def unknown():
    raise gdb.GdbError("this program does not run under raddle")


def add_carried():
    """Adds the symbols of a runtime that is mapped without a file. True if there is one."""
    try:
        text = gdb.execute("info proc mappings", to_string=True)
    except gdb.error:
        return False
    lines = [MAPPING.fullmatch(line) for line in text.splitlines()]
    found = [it.groups() for it in lines if it is not None]
    starts = [int(start, 16) for start, at, file in found if file == CARRIED and int(at, 16) == 0]
    if not starts:
        return False
    first = read(starts[0], PAGE_BYTES)
    for file in dict.fromkeys(file for _, _, file in found):
        library = carried_by(file, first)
        if library is not None:
            # gdb reads it later, too: the descriptor stays open.
            copy = os.memfd_create("raddle")
            os.write(copy, library)
            place = "/proc/%d/fd/%d" % (os.getpid(), copy)
            gdb.execute("add-symbol-file %s -o %#x" % (place, starts[0]), to_string=True)
            return True
    return False


def carried_by(file, first):
    """The library that begins with these bytes, from a file that has it in itself."""
    try:
        with open(file, "rb") as opened:
            whole = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    with whole:
        at = whole.find(first)
        if at < 0:
            return None
        # The table of sections is the end of the library.
        sections, entry_bytes, count = struct.unpack_from("<Q10xHH", first, 40)
        size = sections + entry_bytes * count
        return whole[at : at + size] if size <= LIBRARY_BYTES_MAX else None


