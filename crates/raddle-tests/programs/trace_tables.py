"""Reads a file of `raddle trace` by Perfetto's own schema into tables like those of its trace
processor, and prints the rows of each query as a line of JSON.

Usage: trace_tables.py TRACE SQL...

sched(ts, dur, cpu, tid): turns of threads on carriers
waking(ts, tid)
thread_state(ts, dur, tid, state): Running, R (runnable) and S (waiting)
slice(ts, dur, tid, name, args): the arguments are an object of JSON
mark(ts, pid, tid, name): one of the two is null
flow(pid, out_ts, tid, in_ts): arrows from a mark of a process to one of a thread
thread(tid, name)
process(pid, name)
"""

import json
import sqlite3
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

CLEARED = schema.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
BEGIN = schema.TrackEvent.TYPE_SLICE_BEGIN
END = schema.TrackEvent.TYPE_SLICE_END
INSTANT = schema.TrackEvent.TYPE_INSTANT
RUNNABLE, WAITING = 0, 1


def summed(deltas):
    """Times are differences to the one before."""
    at = 0
    for delta in deltas:
        at += delta
        yield at


class Tables:
    def __init__(self):
        self.threads = {}
        self.processes = {}
        self.events = []  # (time, order, what, CPU, thread, state of the one before)
        self.tracks = {}
        self.process_tracks = {}
        self.names = {}
        self.open = {}
        self.slices = []
        self.marks = []
        self.begun = {}
        self.flows = []
        self.end = 0

    def packet(self, packet):
        self.end = max(self.end, packet.timestamp)
        for thread in packet.process_tree.threads:
            self.threads[thread.tid] = thread.name
        for process in packet.process_tree.processes:
            self.processes[process.pid] = process.cmdline[0] if process.cmdline else None
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("thread"):
                self.tracks[track.uuid] = track.thread.tid
            elif track.HasField("process"):
                self.process_tracks[track.uuid] = track.process.pid
        if packet.sequence_flags & CLEARED:
            self.names.clear()
        for name in packet.interned_data.event_names:
            self.names[name.iid] = name.name
        if packet.HasField("ftrace_events"):
            self.scheduler(packet.ftrace_events)
        if packet.HasField("track_event"):
            self.track_event(packet.timestamp, packet.track_event)

    def scheduler(self, bundle):
        sched = bundle.compact_sched
        times = list(summed(sched.switch_timestamp))
        rows = zip(times, sched.switch_next_pid, sched.switch_prev_state, strict=True)
        for at, tid, state in rows:
            self.events.append((at, len(self.events), "switch", bundle.cpu, tid, state))
        times = list(summed(sched.waking_timestamp))
        for at, tid in zip(times, sched.waking_pid, strict=True):
            self.events.append((at, len(self.events), "wake", bundle.cpu, tid, None))

    def track_event(self, at, event):
        tid = self.tracks.get(event.track_uuid)
        if event.type == BEGIN:
            self.open.setdefault(tid, []).append((at, self.names[event.name_iid]))
        elif event.type == END:
            begin, name = self.open[tid].pop()
            values = {
                it.name: it.string_value or it.int_value for it in event.debug_annotations
            }
            self.slices.append((begin, at - begin, tid, name, json.dumps(values)))
        elif event.type == INSTANT:
            pid = self.process_tracks.get(event.track_uuid)
            self.marks.append((at, pid, tid, self.names[event.name_iid]))
            for flow in event.flow_ids:
                self.begun[flow] = (pid, at)
            for flow in event.terminating_flow_ids:
                self.flows.append((*self.begun.pop(flow), tid, at))

    def states(self):
        """Turns, wake-ups, and what each thread does from one event to the next."""
        turns, wakes, states = [], [], []
        on_cpu, now, woken = {}, {}, set()

        def begin(at, tid, state):
            if tid in now:
                since, before = now[tid]
                states.append((since, at - since, tid, before))
            now[tid] = (at, state)

        for at, _, what, cpu, tid, before in sorted(self.events):
            self.end = max(self.end, at)
            if what == "wake":
                wakes.append((at, tid))
                state = now.get(tid, (at, "S"))[1]
                if state == "Running":
                    woken.add(tid)  # before it waits
                elif state == "S":
                    begin(at, tid, "R")
                continue
            last = on_cpu.get(cpu)
            if last:
                since, stopped = last
                turns.append((since, at - since, cpu, stopped))
                waits = before == WAITING and stopped not in woken
                begin(at, stopped, "S" if waits else "R")
                woken.discard(stopped)
            on_cpu[cpu] = (at, tid) if tid else None
            if tid:
                begin(at, tid, "Running")
        for cpu, last in on_cpu.items():
            if last:
                turns.append((last[0], self.end - last[0], cpu, last[1]))
        for tid in list(now):
            begin(self.end, tid, None)
        return turns, wakes, states


def main():
    trace = schema.Trace()
    with open(sys.argv[1], "rb") as file:
        trace.ParseFromString(file.read())
    tables = Tables()
    for packet in trace.packet:
        tables.packet(packet)
    turns, wakes, states = tables.states()
    database = sqlite3.connect(":memory:")
    for name, columns, rows in [
        ("sched", "ts, dur, cpu, tid", turns),
        ("waking", "ts, tid", wakes),
        ("thread_state", "ts, dur, tid, state", states),
        ("slice", "ts, dur, tid, name, args", tables.slices),
        ("mark", "ts, pid, tid, name", tables.marks),
        ("flow", "pid, out_ts, tid, in_ts", tables.flows),
        ("thread", "tid, name", list(tables.threads.items())),
        ("process", "pid, name", list(tables.processes.items())),
    ]:
        database.execute(f"CREATE TABLE {name} ({columns})")
        marks = ", ".join("?" for _ in columns.split(","))
        database.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    for query in sys.argv[2:]:
        print(json.dumps(database.execute(query).fetchall()))


main()
