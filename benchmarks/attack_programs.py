"""Programs that train under tbmem while something goes wrong; for ``attack_faults.py``."""

from __future__ import annotations

PRELUDE = """
import contextlib, gc, io, logging, os, random, shutil, signal, sys, threading, time
import torch, tbmem
folder, chance = sys.argv[1], random.Random(sys.argv[2])
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
optimizer = torch.optim.Adam(model.parameters())
kept = []
SETTINGS = ["patterns.patience=20", "evidence.confirm_after=10", "monitor.line_seconds=0"]
def train():
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    kept.append(torch.randn(128, 128))
def run(each=lambda step: None, train=train, steps=70, *settings):
    with tbmem.MemoryCallback(None, [*SETTINGS, *settings], run={"logdir": folder, "name": "run"}) as memory:
        memory.watch(model, optimizer)
        for step in range(1, steps + 1):
            each(step)
            train()
            memory.step()
    return memory
"""

PROGRAMS: dict[str, str] = {
    "folder deleted": """
when = chance.choice((1, 3, 5, 8, 11, 30, 45, 60))
run(lambda step: shutil.rmtree(f"{folder}/run", ignore_errors=True) if step == when else None)
""",
    "working folder deleted": """
os.makedirs(f"{folder}/gone"); os.chdir(f"{folder}/gone")
when = chance.randint(1, 60)
run(lambda step: shutil.rmtree(f"{folder}/gone", ignore_errors=True) if step == when else None)
""",
    "fork and sys.exit": """
when = chance.choice((2, 5, 8, 11, 14, 20, 45, 60))
def each(step):
    if step == when:
        child = os.fork()
        if child == 0:
            sys.exit(0)
        for _ in range(100):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                assert os.waitstatus_to_exitcode(status) == 0, f"the child ended with {status}"
                return
            time.sleep(0.1)
        os.kill(child, signal.SIGKILL)
        print("HANG: the child did not end in ten seconds")
run(each)
""",
    "user's torch profiler": """
when, length = chance.randint(1, 14), chance.randint(1, 4)
how = chance.choice(("profile", "schedule", "autograd", "outer", "record", "kineto stacks"))
seen = []
def profiled(step):
    with torch.profiler.profile(with_stack=how == "kineto stacks", profile_memory=chance.random() < 0.5) as mine:
        train()
    seen.append(len(mine.events()))
if how == "profile" or how == "kineto stacks":
    number = iter(range(1, 1000))
    def mixed():
        step = next(number)
        profiled(step) if when <= step < when + length else train()
    run(train=mixed, steps=30)
elif how == "autograd":
    number = iter(range(1, 1000))
    def mixed():
        if next(number) == when:
            with torch.autograd.profiler.profile() as mine:
                train()
            seen.append(len(mine.function_events))
        else:
            train()
    run(train=mixed, steps=30)
elif how == "record":
    number = iter(range(1, 1000))
    def mixed():
        if next(number) == when:
            with tbmem.record(logdir=folder):
                train()
        else:
            train()
    run(train=mixed, steps=30)
    seen.append(1)
elif how == "outer":
    with torch.profiler.profile() as mine:
        run(steps=30)
    seen.append(len(mine.events()))
else:
    wait, warmup, active = chance.randint(0, 3), chance.randint(0, 2), chance.randint(1, 3)
    plan = torch.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=1)
    with torch.profiler.profile(schedule=plan, on_trace_ready=lambda one: seen.append(len(one.events()))) as mine:
        run(lambda step: mine.step(), steps=30)
assert seen and all(seen), f"{how} at step {when}: the program's profile is empty"
""",
    "user's tracer": """
import cProfile, tracemalloc
how = chance.choice(("cProfile", "setprofile", "settrace", "tracemalloc", "monitoring"))
when, calls = chance.randint(1, 12), []
def mine(frame, event, argument):
    if frame.f_code.co_name == "train":
        calls.append(event)
if how == "cProfile":
    profile, number = cProfile.Profile(), iter(range(1, 1000))
    def each(step):
        if step == when:
            profile.enable()
    run(each, steps=40)
    profile.disable()
    counted = {entry.code.co_name: entry.callcount for entry in profile.getstats() if hasattr(entry.code, "co_name")}
    seen = counted.get("train", 0)
    assert seen >= 40 - when, f"from step {when}: cProfile saw {seen} of {40 - when + 1} steps"
elif how == "setprofile":
    run(lambda step: sys.setprofile(mine) if step == when else None, steps=40)
    sys.setprofile(None)
    seen = calls.count("call")
    assert seen >= 40 - when, f"from step {when}: sys.setprofile saw {seen} of {40 - when + 1} steps"
elif how == "settrace":
    run(lambda step: sys.settrace(lambda *event: mine(*event)) if step == when else None, steps=70)
    sys.settrace(None)
    seen = calls.count("call")
    assert seen >= 70 - when, f"from step {when}: sys.settrace saw {seen} of {70 - when + 1} steps"
else:
    tracemalloc.start(5)
    run(steps=70)
    assert tracemalloc.is_tracing(), "tracemalloc was stopped"
""",
    "log handler that raises": """
class Broken(logging.Handler):
    def emit(self, record): raise RuntimeError("a handler of the program's")
class Refusing(logging.Filter):
    def filter(self, record): raise ValueError("a filter of the program's")
logger = logging.getLogger(chance.choice(("tbmem", "")))
logger.setLevel(logging.DEBUG)
if chance.random() < 0.5:
    logger.addHandler(Broken())
else:
    handler = logging.StreamHandler(io.StringIO()); handler.addFilter(Refusing()); logger.addHandler(handler)
    logging.getLogger("tbmem").addFilter(Refusing())
run()
""",
    "stderr closed": """
how, when = chance.randrange(4), chance.randint(0, 60)
def close(step):
    if step == when:
        if how == 0:
            sys.stderr.close()
        elif how == 1:
            os.close(2)
        else:
            sys.stderr = None if how == 2 else open("/dev/full", "w")
close(0)
run(close)
""",
    "SIGALRM": """
class Late(Exception): pass
sent = caught = 0
def late(*_):
    raise Late
signal.signal(signal.SIGALRM, late)
wait = chance.choice((0.0003, 0.001, 0.004, 0.02))
with tbmem.MemoryCallback(None, SETTINGS, run={"logdir": folder, "name": "run"}) as memory:
    memory.watch(model, optimizer)
    for step in range(1, 71):
        train()
        arrived = False
        try:
            signal.setitimer(signal.ITIMER_REAL, wait)
            sent += 1
            memory.step()
            time.sleep(wait * 1.5 + 0.001)
        except Late:
            caught += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
assert caught == sent, f"{sent - caught} of {sent} exceptions of the program were swallowed"
""",
    "recursion limit": """
def deep(levels, call):
    if levels == 0:
        return call()
    return deep(levels - 1, call)
left = chance.randint(4, 60)
with tbmem.MemoryCallback(None, SETTINGS, run={"logdir": folder, "name": "run"}) as memory:
    for step in range(1, 71):
        train()
        if step in (5, 20, 44, 45, 46):
            depth = 0
            frame = sys._getframe()
            while frame: depth, frame = depth + 1, frame.f_back
            deep(sys.getrecursionlimit() - depth - left, memory.step)
        else:
            memory.step()
assert memory.summary is not None
others = [problem for problem in memory.summary.problems if not problem.startswith("passed over")]
assert not others, others
""",
    "resized storages": """
def shrink(step):
    if step > 20 and kept:
        kept[chance.randrange(len(kept))].untyped_storage().resize_(chance.choice((0, 16)))
empty = torch.empty(1 << 16); empty.untyped_storage().resize_(0)
held = [empty, torch.empty(8).as_strided((1,), (1,))]
run(shrink)
""",
    "truncated mapping": """
import mmap, numpy as np
path = f"{folder}/mapped.bin"
open(path, "wb").write(bytes(1 << 22))
tensors = [torch.from_file(path, shared=chance.random() < 0.5, size=1 << 18, dtype=torch.int32)]
array = np.memmap(path, dtype=np.int64, mode="r")
held = [array, torch.from_file(path, shared=True, size=1 << 19, dtype=torch.int64)]
when = chance.randint(1, 50)
run(lambda step: os.truncate(path, 0) if step == when else None)
""",
    "threads with generators": """
ended, failed = threading.Event(), []
def work():
    try:
        while not ended.is_set():
            tuple(x for x in range(2000)); list(map(str, range(300))); dict(zip(range(200), range(200)))
            tuple(torch.zeros(1) for _ in range(50))
    except BaseException as error:
        failed.append(repr(error))
threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
for thread in threads: thread.start()
run(steps=60)
ended.set()
for thread in threads: thread.join(10)
assert not failed, f"a thread of the program died: {failed[0]}"
""",
    "objects that raise": """
class Bad:
    def __getattribute__(self, name): raise RuntimeError("no attribute")
    def __eq__(self, other): raise RuntimeError("no comparison")
    def __len__(self): raise RuntimeError("no length")
    def __repr__(self): raise RuntimeError("no text")
    def __bool__(self): raise RuntimeError("no truth")
    __hash__ = None
class Slots:
    __slots__ = ("a", "__dict__")
class Lazy(dict):
    def items(self): raise RuntimeError("no items")
    def __iter__(self): raise RuntimeError("no keys")
class Mode(torch.utils._python_dispatch.TorchDispatchMode):
    calls = 0
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        Mode.calls += 1
        return function(*args, **(kwargs or {}))
things = [Bad(), Slots(), Lazy(a=1), type("T", (), {"__class__": property(lambda self: 1 / 0)})()]
loop = []; loop.append(loop)
def more(step):
    things.append(Bad()); things.append(Lazy(b=torch.zeros(64, 64)))
run(more)
""",
    "names with quotes": """
name = chance.choice(('a"b', "a'b", "a b", "ä", "a\\\\b", "a\\nb", "%s", "{x}", "-r", "\\ud800", "a\\x00b", "x" * 300))
try:
    with tbmem.MemoryCallback(None, SETTINGS, run={"logdir": folder, "name": name}) as memory:
        for step in range(14):
            train(); memory.step()
except tbmem.errors.TbmemError as error:
    assert len(str(error).splitlines()) == 1
    print("REFUSED", file=sys.stderr)
else:
    import gzip, json
    for trace in memory.summary.traces:
        json.loads(gzip.open(trace).read())
""",
    "exception in a step": """
class Mine(BaseException if chance.random() < 0.3 else Exception): pass
errors = (Mine, SystemExit, KeyboardInterrupt, MemoryError, torch.OutOfMemoryError, RecursionError)
when, how = chance.randint(1, 60), chance.choice(errors)
def fail(step):
    if step == when:
        raise how("of the program")
try:
    run(fail)
except how:
    pass
else:
    raise AssertionError("the program's exception was swallowed")
assert sys.getprofile() is None and not torch._C._autograd._profiler_enabled(), "left switched on"
""",
    "steps from threads": """
memory = tbmem.MemoryCallback(None, SETTINGS, run={"logdir": folder, "name": "run"})
memory.start()
def work():
    for _ in range(40):
        model(torch.randn(4, 64)).sum(); memory.step()
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
for _ in range(20): train(); memory.step()
for thread in threads: thread.join()
memory.stop()
""",
}
"""Each is run after the prelude, and has to end in order and print nothing of tbmem's inside."""
