# Green threads in gdb 12 and later: of a live process, and of a core file.
#
# gdb knows kernel threads. A green thread that runs is on one of them, and all of gdb's commands
# work on it there. A parked one has its registers in memory. While it is selected, an unwinder
# presents it as the caller of the kernel thread's innermost frame: no register is changed, so
# nothing has to be restored before the program goes on.
#
# Steps of gdb's follow a kernel thread; `raddle next` and `raddle finish` follow a green thread, by
# breakpoints with a condition.
#
# Rejected: to write the parked thread's registers into the kernel thread, and back before it goes
# on. A debugger that is killed meanwhile, or a signal that makes the thread run, destroys both.
#
# `raddle_layout`, a variable of the preloaded library, says where the runtime's tables are
# (crates/raddle-inspect/src/layout.rs).

import fnmatch

from gdb.unwinder import Unwinder, register_unwinder

VERSION = 7
MAGIC = b"RADDLE\0\7"
WORDS = (
    "chunks chunk_count slots_per_chunk slot_bytes used main carrier_id carrier_kernel_tid "
    "ready_flags save_area_bytes started carriers carrier_count thread_fs "
    "common_events lost_events event_moments host_group group_lights blocked carrier_samples "
    "carrier_wakes text_start text_end child_start pass_end actions"
).split()
OFFSETS = (
    "tid life on_cpu claim wait_kind wait_arg wait_lock since_ns deadline_ns ready_ns context "
    "switches steal preempt park carrier bound save_area engine group name host charged_ns"
).split()
CARRIER_OFFSETS = "current state handed_off switches steal steal_fail preempt park events".split()
REST = 18  # further offsets in a carrier, and those in an engine
LAYOUT = struct.Struct("<8sII%dQ%dI" % (len(WORDS), len(OFFSETS) + len(CARRIER_OFFSETS) + REST))
WAITS = (
    "none futex condvar semaphore mutex sleep fd_read fd_write poll epoll signal child join yield "
    "other api unpark completion page"
).split()
ADDRESSES = {"futex", "condvar", "semaphore", "mutex", "join"}
NUMBERS = {"fd_read", "fd_write", "poll", "epoll", "other", "page"}
SLOTS_MAX = 1 << 22
CARRIERS_MAX = 1 << 12
EXITING = 2
WAITING = (1, 6)


class Layout:
    """Where the tables are."""

    def __init__(self):
        address = symbol("raddle_layout")
        fields = LAYOUT.unpack(read(address, LAYOUT.size))
        if fields[0] != MAGIC or fields[1] not in (0, VERSION):
            raise gdb.GdbError("the program runs under another version of raddle")
        if fields[1] == 0:
            raise gdb.GdbError("the program has started no thread yet")
        rest = iter(fields[3:])
        self.__dict__.update(zip(WORDS, rest))
        self.thread = dict(zip(OFFSETS, rest))
        self.carrier = dict(zip(CARRIER_OFFSETS, rest))


class Green:
    """A green thread, as its slot says now."""

    below = None

    def __init__(self, layout, address, slot):
        def field(name, kind="<I"):
            return struct.unpack_from(kind, slot, layout.thread[name])[0]

        self.slot = address
        self.tid = field("tid")
        name = slot[layout.thread["name"] :][:16]
        self.name = name.split(b"\0")[0].decode(errors="replace")
        self.context = field("context", "<Q")
        self.carrier = field("carrier", "<Q")
        self.is_running = field("on_cpu") != 0
        self.life = field("life")
        self.fs = struct.unpack_from("<Q", slot, layout.thread_fs)[0]
        self.host = field("host", "<Q")
        kind = field("wait_kind")
        wait = WAITS[kind] if kind < len(WAITS) else "unknown"
        argument = field("wait_arg", "<Q")
        if self.life == EXITING:
            self.doing = "exiting"
        elif self.is_running:
            self.doing = "running"
        elif field("claim") not in WAITING:
            self.doing = "runnable"
        elif wait in ADDRESSES:
            self.doing = "waiting %s %#x" % (wait, argument)
        elif wait in NUMBERS:
            self.doing = "waiting %s %d" % (wait, argument)
        else:
            self.doing = "waiting %s" % wait

    def title(self):
        return '#%d "%s" %s' % (self.tid, self.name, self.doing)


def threads(layout):
    """All green threads, and all light threads."""
    greens = green_threads(layout)
    return greens + lights(greens, layout)


def green_threads(layout):
    """All green threads."""
    found = []
    used = min(word(layout.used), layout.chunk_count * layout.slots_per_chunk, SLOTS_MAX)
    for first in range(0, used, layout.slots_per_chunk):
        chunk = word(layout.chunks + first // layout.slots_per_chunk * 8)
        if chunk == 0:
            continue
        count = min(layout.slots_per_chunk, used - first)
        memory = read(chunk, count * layout.slot_bytes)
        for number in range(count):
            at = number * layout.slot_bytes
            slot = memory[at : at + layout.slot_bytes]
            if struct.unpack_from("<I", slot, layout.thread["life"])[0] != 0:
                found.append(Green(layout, chunk + at, slot))
    return found


def carriers(layout):
    """The slots of the threads that run, by the addresses of their carriers."""
    count = min(half(layout.carrier_count), CARRIERS_MAX)
    table = struct.unpack("<%dQ" % count, read(layout.carriers, count * 8))
    return {at: word(at + layout.carrier["current"]) for at in table if at != 0}


def here(layout):
    """The id of the green thread on the selected kernel thread, or 0."""
    thread = gdb.selected_thread()
    if thread is None:
        return 0
    frame = gdb.newest_frame()
    base = int(frame.read_register("gs_base")) & (2**64 - 1)
    if base == 0:
        return thread.ptid[1]  # a core file, in which the number is the green thread's
    try:
        slot = word(base + layout.carrier["current"])
        return half(slot + layout.thread["tid"]) if slot != 0 else 0
    except gdb.MemoryError:
        return 0


class Parked(Unwinder):
    """Presents a parked thread as the caller of the innermost frame."""

    def __init__(self):
        super().__init__("raddle")
        self.green = None
        self.registers = {}
        self.code = range(0)
        self.at = None

    def select(self, layout, green):
        frame = gdb.newest_frame()
        self.at = tuple(int(frame.read_register(name)) for name in ("rsp", "rip"))
        self.registers = registers(layout, green)
        self.green = green
        self.code = range(layout.text_start, layout.text_end)
        gdb.invalidate_cached_frames()
        self.shown().select()

    def innermost(self):
        """The parked thread's innermost frame."""
        frame = gdb.newest_frame()
        while frame.type() == gdb.INLINE_FRAME:
            frame = frame.older()
        frame = frame.older()
        if frame is None:
            raise gdb.GdbError("the stack of this thread can't be read")
        return frame

    def shown(self):
        """The first frame that a reader wants."""
        frame = self.innermost()
        outer = frame
        while outer is not None and outer.pc() in self.code:
            frame = outer
            outer = outer.older()
        is_interrupted = frame.type() == gdb.SIGTRAMP_FRAME and outer is not None
        return outer if is_interrupted else frame

    def leave(self):
        if self.green is not None:
            self.green = None
            gdb.invalidate_cached_frames()

    def __call__(self, pending_frame):
        if self.green is None:
            return None
        own = tuple(int(pending_frame.read_register(name)) for name in ("rsp", "rip"))
        if own != self.at:
            return None
        long = gdb.lookup_type("unsigned long")
        identity = FrameId(
            gdb.Value(self.registers["rsp"] - 16).cast(long), gdb.Value(own[1]).cast(long)
        )
        info = pending_frame.create_unwind_info(identity)
        for name, value in self.registers.items():
            info.add_saved_register(name, gdb.Value(value).cast(long))
        return info


class FrameId:
    def __init__(self, sp, pc):
        self.sp = sp
        self.pc = pc


def registers(layout, green):
    """What a switch has saved: crates/raddle-arch/src/x86_64/switch.rs has a picture. The other
    registers are where the unwind tables of the code say, or not saved."""
    at, rbp, rbx = struct.unpack("<3Q", read(green.context + 8, 24))
    if at != layout.child_start:
        saved = {"rip": at + 2, "rbp": rbp, "rbx": rbx, "rsp": green.context + 32}
    else:
        words = struct.unpack("<13Q", read(green.context + 16, 13 * 8))
        names = "rdi rsi rdx r10 r8 r9 rbx rbp r12 r13 r14 r15 rip".split()
        saved = dict(zip(names, words))
        saved["rsp"] = green.context + 15 * 8
    saved["fs_base"] = green.fs
    return saved


PARKED = Parked()


class Hidden:
    """Leaves out of the stack of a parked thread: the kernel thread's own frame, and the frames of
    the runtime but the outermost one, which the program has called."""

    name = "raddle"
    priority = 100
    enabled = True

    def filter(self, frames):
        if PARKED.green is None:
            return frames
        first = PARKED.shown().level()
        return (it for it in frames if it.inferior_frame().level() >= first)


def pick(layout, text):
    """The thread with this id, or those with such a name, or all."""
    everyone = threads(layout)
    if text == "all":
        return everyone
    text = text.lstrip("#")
    found = [it for it in everyone if str(it.tid) == text or fnmatch.fnmatchcase(it.name, text)]
    if not found:
        raise gdb.GdbError("no green thread is %s" % text)
    return found


def kernel_thread(layout, green):
    """The thread of gdb's that a green thread runs on."""
    selected = gdb.selected_thread()
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        if here(layout) == green.tid:
            return thread
    if selected is not None:
        selected.switch()
    return None


def select(layout, green):
    PARKED.leave()
    if green.below is not None:
        green = green.below
    if isinstance(green, Light) and green.is_new:
        raise gdb.GdbError("#%d has not run yet" % green.tid)
    thread = kernel_thread(layout, green) if green.is_running or is_own_core() else None
    if thread is not None:
        thread.switch()
        gdb.newest_frame().select()
    elif green.is_running:
        raise gdb.GdbError("#%d runs, and not on a thread that gdb knows" % green.tid)
    else:
        PARKED.select(layout, green)


def is_own_core():
    """True for a core file in which gdb's threads are the green threads."""
    thread = gdb.selected_thread()
    frame = gdb.newest_frame() if thread is not None else None
    return frame is not None and int(frame.read_register("gs_base")) == 0


def each(layout, wanted, command, from_tty):
    selected = gdb.selected_thread()
    for green in wanted:
        print("\nGreen thread " + green.title() + ":")
        try:
            select(layout, green)
            gdb.execute(command, from_tty)
        except gdb.error as error:
            print("  " + str(error))
    PARKED.leave()
    if selected is not None and selected.is_valid():
        selected.switch()


def command(name, kind):
    """Makes a command of a function, with its text as the help."""

    def make(function):
        def invoke(self, argument, from_tty):
            function(argument.strip(), from_tty)

        parts = {"__doc__": function.__doc__, "invoke": invoke}
        type(function.__name__, (gdb.Command,), parts)(name, kind)
        return function

    return make


class Raddle(gdb.Command):
    """Green threads: list, select and inspect them. `help raddle` lists the commands."""

    def __init__(self):
        super().__init__("raddle", gdb.COMMAND_STACK, prefix=True)


Raddle()


@command("raddle threads", gdb.COMMAND_STACK)
def on_threads(argument, from_tty):
    """Lists green threads: raddle threads [GLOB]."""
    layout = Layout()
    glob = argument or "*"
    current = PARKED.green.tid if PARKED.green is not None else here(layout)
    for green in threads(layout):
        if fnmatch.fnmatchcase(green.name, glob):
            mark = "*" if green.tid == current else " "
            print("%s %s" % (mark, green.title()))


@command("raddle thread", gdb.COMMAND_STACK)
def on_thread(argument, from_tty):
    """Selects a green thread by its id or name: raddle thread [TID|NAME].

    Frames, variables and registers are its own then. Without an argument the kernel thread is
    selected again, as when the program goes on."""
    PARKED.leave()
    if not argument:
        return
    layout = Layout()
    green, *others = pick(layout, argument)
    if others:
        raise gdb.GdbError("%d green threads are %s" % (1 + len(others), argument))
    select(layout, green)
    print("[Green thread " + green.title() + "]")
    gdb.execute("frame", from_tty)


@command("raddle frame", gdb.COMMAND_STACK)
def on_frame(argument, from_tty):
    """Selects a frame of the selected green thread, by its function: raddle frame FUNCTION.

    gdb's own frame command also finds the innermost frame of the kernel thread, which stands below
    those of a parked thread and isn't the thread's."""
    frame = gdb.newest_frame() if PARKED.green is None else PARKED.shown()
    while frame is not None and frame.name() != argument:
        frame = frame.older()
    if frame is None:
        raise gdb.GdbError("no frame of %s" % (argument or "no function"))
    frame.select()
    gdb.execute("frame", from_tty)


@command("raddle bt", gdb.COMMAND_STACK)
def on_backtrace(argument, from_tty):
    """Shows the stack of a green thread, or of all: raddle bt [all|TID|GLOB]."""
    layout = Layout()
    if argument:
        each(layout, pick(layout, argument), "bt", from_tty)
    else:
        gdb.execute("bt", from_tty)


@command("raddle apply", gdb.COMMAND_STACK)
def on_apply(argument, from_tty):
    """Executes a command for green threads: raddle apply all|TID|GLOB COMMAND."""
    which, _, line = argument.partition(" ")
    if not line:
        raise gdb.GdbError("give a thread or all, and a command")
    layout = Layout()
    each(layout, pick(layout, which), line, from_tty)


def caller(frame):
    """The frame to which a frame returns."""
    outer = frame.older()
    while frame.type() == gdb.INLINE_FRAME and outer is not None:
        frame, outer = outer, outer.older()
    while outer is not None and outer.type() == gdb.INLINE_FRAME:
        outer = outer.older()
    return outer


def selected_frame():
    """The selected frame, which must be the green thread's."""
    frame = gdb.selected_frame()
    if PARKED.green is not None and frame.level() < PARKED.innermost().level():
        raise gdb.GdbError("this frame is the kernel thread's; see help raddle frame")
    return frame


def ensure_code(address):
    """Refuses an address that isn't in code: a breakpoint there would change the program's data."""
    with open("/proc/%d/maps" % gdb.selected_inferior().pid) as lines:
        for line in lines:
            ends, rights = line.split()[:2]
            first, end = (int(it, 16) for it in ends.split("-"))
            if first <= address < end and "x" in rights:
                return
    raise gdb.GdbError("the caller of this frame can't be found")


def run_until(layout, places, stack):
    """Lets the program go on until the selected green thread is at one of these addresses, on
    whichever carrier that is: in the call that returns to this stack pointer, or behind it."""
    tid = PARKED.green.tid if PARKED.green is not None else here(layout)
    if tid == 0:
        raise gdb.GdbError("no green thread is selected")
    for address in places:
        ensure_code(address)
    points = []
    for address in places:
        point = gdb.Breakpoint("*%#x" % address, internal=True)
        point.silent = True
        point.condition = "$_raddle_at(%d, %d) == 1" % (tid, stack)
        points.append(point)
    PARKED.leave()
    try:
        gdb.execute("continue")
    finally:
        for point in points:
            if point.is_valid():
                point.delete()
    if gdb.selected_thread() is not None:
        gdb.execute("frame")


@command("raddle finish", gdb.COMMAND_RUNNING)
def on_finish(argument, from_tty):
    """Lets the program go on until the selected frame of a green thread returns, on whichever
    carrier that is: raddle finish."""
    layout = Layout()
    outer = caller(selected_frame())
    if outer is None:
        raise gdb.GdbError("this frame has no caller")
    run_until(layout, [outer.pc()], int(outer.read_register("rsp")))


@command("raddle next", gdb.COMMAND_RUNNING)
def on_next(argument, from_tty):
    """Lets the program go on until a green thread is at another line of the selected function, or
    has left it, on whichever carrier that is: raddle next.

    gdb's own next follows a kernel thread. A green thread that waits may go on on another one."""
    layout = Layout()
    frame = selected_frame()
    function = frame.function()
    line = frame.find_sal()
    if function is None or line.symtab is None:
        raise gdb.GdbError("this function has no lines")
    block = frame.block()
    while block.function is None:
        block = block.superblock
    table = line.symtab.linetable()
    inside = range(block.start, block.end)
    others = {it.pc for it in table if it.pc in inside and it.line not in (0, line.line)}
    outer = caller(frame)
    if outer is None:
        raise gdb.GdbError("this frame has no caller")
    run_until(layout, sorted(others | {outer.pc()}), int(outer.read_register("rsp")))


@command("thread apply all", gdb.COMMAND_RUNNING)
def on_apply_all(argument, from_tty):
    """Executes a command for all threads: those that gdb knows, and parked green threads.

    Usage: thread apply all [FLAG]... COMMAND"""
    known = gdb.selected_inferior().threads()
    numbers = " ".join(str(it.num) for it in sorted(known, key=lambda it: -it.num))
    if not numbers:
        return
    command = argument.split()
    while command and command[0].startswith("-"):
        command.pop(0)
    PARKED.leave()
    gdb.execute("thread apply %s %s" % (numbers, argument), from_tty)
    try:
        layout = Layout()
    except gdb.GdbError:
        return
    if not is_own_core():
        parked = [it for it in threads(layout) if not it.is_running]
        each(layout, parked, " ".join(command), from_tty)


class Tid(gdb.Function):
    """The id of the green thread that is selected, or 0: for conditions of breakpoints."""

    def __init__(self):
        super().__init__("_raddle_thread")

    def invoke(self):
        try:
            return PARKED.green.tid if PARKED.green is not None else here(Layout())
        except (gdb.error, gdb.GdbError):
            return 0


class At(gdb.Function):
    """1 if the selected thread is this green thread, and its innermost frame is at this stack
    pointer or returns to it."""

    def __init__(self):
        super().__init__("_raddle_at")

    def invoke(self, tid, stack):
        try:
            if here(Layout()) != int(tid):
                return 0
            frame = gdb.newest_frame()
            outer = caller(frame)
            places = [it.read_register("rsp") for it in (frame, outer) if it is not None]
            return int(any(int(place) == int(stack) for place in places))
        except (gdb.error, gdb.GdbError):
            return 0


class Name(gdb.Function):
    """The name of the green thread that is selected: for conditions of breakpoints."""

    def __init__(self):
        super().__init__("_raddle_name")

    def invoke(self):
        tid = int(gdb.parse_and_eval("$_raddle_thread()"))
        try:
            found = [it.name for it in threads(Layout()) if it.tid == tid]
        except (gdb.error, gdb.GdbError):
            found = []
        return found[0] if found else ""


def names():
    """Names gdb's threads after the green threads that they run."""
    try:
        layout = Layout()
        by_tid = {it.tid: it for it in threads(layout)}
        running = carriers(layout)
    except (gdb.error, gdb.GdbError, gdb.MemoryError):
        return
    kernel = {half(at + layout.carrier_kernel_tid): slot for at, slot in running.items()}
    tids = {it.slot: it.tid for it in by_tid.values()}
    is_core = is_own_core()
    for thread in gdb.selected_inferior().threads():
        lwp = thread.ptid[1]
        green = by_tid.get(lwp if is_core else tids.get(kernel.get(lwp)))
        if green is not None:
            thread.name = "#%d %s" % (green.tid, green.name) if not is_core else green.name
        elif lwp in kernel:
            thread.name = "idle carrier"


register_unwinder(None, PARKED, replace=True)
gdb.frame_filters["raddle"] = Hidden()
for function in (At, Tid, Name):
    function()
gdb.events.cont.connect(lambda event: PARKED.leave())
gdb.events.stop.connect(lambda event: PARKED.leave())
# The runtime's own signals.
gdb.execute("handle SIG32 SIG33 nostop noprint pass", to_string=True)
gdb.execute("define info hook-threads\npython names()\nend", to_string=True)
gdb.execute("define info hookpost-threads\nraddle threads\nend", to_string=True)
