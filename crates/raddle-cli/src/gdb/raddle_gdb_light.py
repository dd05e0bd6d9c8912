# Light threads of the explicit API: the second part of the script for gdb, of which raddle_gdb.py
# is the rest.
#
# The slot of each host leads to the group of hosts, and that to the stacks of light threads. The
# structures are in crates/raddle-inspect/src/light.rs.

LIGHTS = struct.Struct("<8s4Q8I")
LIGHTS_MAGIC = b"RADLGT\0\1"
LIGHT_OFFSETS = "on_cpu claim context host life epoch deadline_ns has_deadline".split()
LIGHT_TID_BASE = 3 << 29
LIGHT_BYTES_MAX = 1 << 12
LIGHTS_MAX = 1 << 20
REGIONS_MAX = 1 << 16


class Light:
    """A light thread of the explicit API: crates/raddle-inspect/src/light.rs."""

    name = "light"

    def __init__(self, tid, field, hosts):
        self.tid = tid
        self.context = field("context", "<Q")
        host = hosts.get(field("host", "<Q"))
        self.fs = host.fs if host is not None else 0
        self.is_running = field("on_cpu") != 0
        self.is_new = host is None
        # The green thread that is on its stack.
        self.below = host if self.is_running else None
        if self.below is not None:
            self.doing = "on #%d" % host.tid
        elif self.is_new:
            self.doing = "runnable"
        else:
            # A wait for a completion leaves the claim word as it is, and so does a yield.
            self.doing = "waiting api"

    def title(self):
        return '#%d "%s" %s' % (self.tid, self.name, self.doing)


def lights(greens, layout):
    """All light threads, and the places that their hosts lead to."""
    hosts = {green.host: green for green in greens if green.host != 0}
    groups = {word(host + layout.host_group) for host in hosts}
    found = []
    for group in groups:
        at = word(group + layout.group_lights)
        if at == 0:
            continue
        magic, size, regions, epoch, light_bytes, *offsets = LIGHTS.unpack(read(at, LIGHTS.size))
        if magic != LIGHTS_MAGIC or size != LIGHTS.size or light_bytes > LIGHT_BYTES_MAX:
            continue
        offsets = dict(zip(LIGHT_OFFSETS, offsets))
        epoch = word(epoch)
        region = word(regions)
        for _ in range(REGIONS_MAX):
            if region == 0:
                break
            region, low, stack_bytes, used, first = struct.unpack("<5Q", read(region, 40))
            for number in range(min(used, LIGHTS_MAX)):
                light = read(low + (number + 1) * stack_bytes - light_bytes, light_bytes)

                def field(name, kind="<I"):
                    return struct.unpack_from(kind, light, offsets[name])[0]

                if field("life", "<Q") % 2 == 1 and field("epoch", "<Q") == epoch:
                    found.append(Light(LIGHT_TID_BASE + first + number, field, hosts))
    return sorted(found, key=lambda light: light.tid)


