"""region(), sleep(), wake(), compact() with a fake PyTorch. On the host driver tensors have contents."""
import os
import unittest

from support import ProgramTest

HAS_CONTENTS = os.environ.get("VMM_DRIVER") == "host"

BEGIN = f"""
import torch, vmmcache
from support import MIB
vmmcache.install()
HAS_CONTENTS = {HAS_CONTENTS}

def tensor(mebibytes=4, value=None):
    made = torch.empty(mebibytes * MIB)
    return fill(made, value) if value is not None else made

def fill(made, value):
    return made.fill_(value) if HAS_CONTENTS else made

def holds(made, value):
    return not HAS_CONTENTS or made.tolist() == [value] * made.nbytes

def asleep():
    return {{tag: one['asleep'] for tag, one in vmmcache.sleep_state().items()}}

def raises(kind, text, call, *given, **named):
    try:
        call(*given, **named)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError('nothing was raised')
"""


class SleepTest(ProgramTest):
    def does(self, code, **environment):
        self.succeeds(BEGIN + code, **environment)

    def test_all_memory_sleeps_and_wakes(self):
        self.does("""
plain = tensor(value=1)
with vmmcache.region('weights'):
    weights = tensor(8, 2)
before, reserved = torch._C.synchronized, vmmcache.memory_reserved()
assert vmmcache.sleep() == reserved >= 12 * MIB
assert torch._C.synchronized > before
assert vmmcache.memory_reserved() == 0 and vmmcache.memory_allocated() == 12 * MIB
assert asleep() == {None: True, 'weights': True}
library = vmmcache._library.load()
assert library.vmm_torch_try_alloc(MIB, 0, None) is None and 'sleeps' in vmmcache._library.last_error()
assert vmmcache.sleep() == 0
assert vmmcache.wake() >= 12 * MIB
assert asleep() == {None: False, 'weights': False} and vmmcache.wake() == 0
assert holds(plain, 1) and holds(weights, 2)
assert vmmcache.sleep_state()['weights']['backup_bytes'] >= 8 * MIB
vmmcache.backup_drop()
assert vmmcache.sleep_state()['weights']['backup_bytes'] == 0
""")

    def test_memory_that_is_offered_serves_no_request(self):
        self.does("""
with vmmcache.region('weights'):
    weights = tensor(8, 2)
before, reserved = torch._C.synchronized, vmmcache.memory_reserved()
assert vmmcache.sleep(on_claim=True) == 0
assert torch._C.synchronized == before and vmmcache.memory_reserved() == reserved
assert asleep()['weights'] is False
library = vmmcache._library.load()
assert library.vmm_torch_try_alloc(MIB, 0, None) is None and 'sleeps' in vmmcache._library.last_error()
assert vmmcache.wake() == 0 and holds(weights, 2)
more = tensor(4, 3)
vmmcache.sleep('weights', on_claim=True)
assert vmmcache.sleep('weights') >= 8 * MIB and asleep()['weights'] is True
assert vmmcache.wake() >= 8 * MIB and holds(weights, 2) and holds(more, 3)
""")

    def test_tags_sleep_apart_and_wake_in_stages(self):
        self.does("""
plain = tensor(value=1)
with vmmcache.region('weights'):
    weights = tensor(8, 2)
    with vmmcache.region('cache', keep=False):
        cache = tensor(16, 3)
    more = tensor(8, 4)
vmmcache.sleep('weights')
assert asleep() == {None: False, 'weights': True, 'cache': False}
other = tensor(value=5)
vmmcache.sleep(['cache', 'weights'])
state = vmmcache.sleep_state()
assert state['cache']['asleep_bytes'] >= 16 * MIB and state['cache']['backup_bytes'] == 0
assert state['cache']['reserved_bytes'] == 0 and state['weights']['backup_bytes'] >= 16 * MIB
vmmcache.wake(['weights'])
assert asleep() == {None: False, 'weights': False, 'cache': True}
assert holds(weights, 2) and holds(more, 4) and holds(plain, 1) and holds(other, 5)
vmmcache.wake(['cache', None])
fill(cache, 7)
assert holds(cache, 7)
""")

    def test_a_sleep_may_keep_other_contents_than_the_region(self):
        self.does("""
tags = ('a', 'b', 'c')
kept = {}
for tag in tags:
    with vmmcache.region(tag, keep=tag == 'a'):
        kept[tag] = tensor(value=9)
def backed():
    return [tag for tag in tags if vmmcache.sleep_state()[tag]['backup_bytes']]
for keep, wanted in ((None, ['a']), (True, list(tags)), (False, []), (['b', 'c'], ['b', 'c']), ('b', ['b']), ((), [])):
    vmmcache.backup_drop()
    vmmcache.sleep(tags, keep=keep)
    assert backed() == wanted, (keep, backed())
    vmmcache.wake()
    for tag in tags:
        assert tag not in wanted or holds(kept[tag], 9)
        fill(kept[tag], 9)
""")

    def test_captured_graphs_belong_to_the_region(self):
        self.does("""
graph = torch.cuda.CUDAGraph()
with vmmcache.region('graphs'):
    with torch.cuda.graph(graph):
        inside = tensor(value=6)
free = torch.cuda.CUDAGraph()
with torch.cuda.graph(free):
    outside = tensor(value=7)
vmmcache.sleep('graphs')
assert asleep() == {None: False, 'graphs': True}
vmmcache.wake()
vmmcache.sleep()
assert asleep() == {None: True, 'graphs': True}
vmmcache.wake()
assert holds(inside, 6) and holds(outside, 7)
""")

    def test_a_graph_may_end_while_it_sleeps(self):
        self.does("""
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    inside = tensor(value=6)
vmmcache.sleep()
del graph
vmmcache.wake()
assert len(vmmcache._sleep._pools()) == 1 and holds(inside, 6)
del inside
torch.cuda.empty_cache()
assert vmmcache.memory_reserved() == 0
""")

    def test_tensors_may_end_while_they_sleep(self):
        self.does("""
with vmmcache.region('weights'):
    one, two = tensor(value=1), tensor(value=2)
vmmcache.sleep()
del one
vmmcache.wake()
assert holds(two, 2) and vmmcache.memory_allocated() == 4 * MIB
""")

    def test_a_capture_is_left_alone(self):
        self.does("""
keep = tensor()
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    raises(vmmcache.VmmError, 'while a CUDA graph is captured', vmmcache.sleep)
    raises(vmmcache.VmmError, 'while a CUDA graph is captured', vmmcache.compact)
    raises(vmmcache.VmmError, 'while a CUDA graph is captured', vmmcache.region('x').__enter__)
assert asleep()[None] is False
""")

    def test_too_little_memory_to_wake_changes_nothing(self):
        self.does("""
with vmmcache.region('big'):
    big = tensor(48, 5)
vmmcache.sleep('big')
other = tensor(48)
raises(torch.OutOfMemoryError, 'cannot wake', vmmcache.wake)
assert asleep() == {None: False, 'big': True}
del other
vmmcache.wake()
assert holds(big, 5)
""", VMM_LIMIT="64MiB")

    def test_what_a_failed_sleep_began_is_taken_back(self):
        """The second call, for contents that are discarded, fails."""
        self.does("""
from vmmcache import _sleep
with vmmcache.region('a'):
    a = tensor(value=1)
with vmmcache.region('b', keep=False):
    b = tensor(value=2)
move, calls = _sleep._move, []
def fail(function, pools, what, discards=False, on_claim=False):
    calls.append((function, discards))
    if function == 'vmm_pool_sleep' and discards:
        raise vmmcache.VmmError('planted')
    move(function, pools, what, discards, on_claim)
_sleep._move = fail
raises(vmmcache.VmmError, 'planted', vmmcache.sleep)
assert asleep() == {None: False, 'a': False, 'b': False}, asleep()
assert [discards for function, discards in calls if function == 'vmm_pool_sleep'] == [False, True], calls
assert holds(a, 1) and holds(b, 2)
""")

    def test_a_hundred_cycles_leave_nothing(self):
        self.does("""
with vmmcache.region('weights'):
    weights = [tensor(2, number) for number in range(8)]
def seen():
    state = vmmcache.sleep_state()['weights']
    return state, vmmcache.memory_reserved(), vmmcache.memory_allocated()
vmmcache.sleep(), vmmcache.wake()
before = seen()
for _ in range(100):
    vmmcache.sleep()
    assert vmmcache.memory_reserved() == 0
    vmmcache.wake()
assert seen() == before
assert all(holds(one, number) for number, one in enumerate(weights))
""")

    def test_regions_are_of_their_thread(self):
        self.does("""
import threading
made = []
with vmmcache.region('mine'):
    thread = threading.Thread(target=lambda: made.append(tensor()))
    thread.start()
    thread.join()
assert vmmcache.sleep_state()['mine']['asleep_bytes'] == 0
vmmcache.sleep('mine')
assert vmmcache.memory_reserved() >= 4 * MIB
""")

    def test_a_region_ends_with_an_exception(self):
        self.does("""
for _ in range(3):
    try:
        with vmmcache.region('x'):
            raise KeyError
    except KeyError:
        pass
plain = tensor()
vmmcache.sleep('x')
assert vmmcache.memory_reserved() >= 4 * MIB
""")

    def test_snapshots_and_history_stay_sound(self):
        self.does("""
torch.cuda.memory._record_memory_history()
plain = tensor()
with vmmcache.region('weights'):
    weights, small = tensor(8), torch.empty(1000)
def segments():
    picture = vmmcache.snapshot()
    assert vmmcache.check_snapshot(picture) == []
    return [(segment['address'], segment['total_size']) for segment in picture['segments']]
before = segments()
vmmcache.sleep()
assert segments() == before
stats = torch.cuda.memory_stats()
assert stats['reserved_bytes.all.current'] == stats['reserved_bytes.small_pool.current'] == 0
del plain
segments()
vmmcache.wake()
other = tensor()
assert len(segments()) == len(before)
assert torch.cuda.memory_stats()['reserved_bytes.all.current'] == vmmcache.memory_reserved() >= 12 * MIB
""")

    def test_misuse_is_told(self):
        self.does("""
raises(TypeError, 'a tag is a str', vmmcache.region(7).__enter__)
raises(TypeError, 'a tag is a str', vmmcache.sleep, [7])
raises(vmmcache.VmmError, "region('none')", vmmcache.sleep, 'none')
raises(ValueError, 'zero byte', vmmcache.region('a\\0b').__enter__)
raises(vmmcache.VmmError, '1 to 63 bytes', vmmcache.region('x' * 64).__enter__)
raises(vmmcache.VmmError, '1 to 63 bytes', vmmcache.region('').__enter__)
assert vmmcache.sleep() == 0 and vmmcache.wake() == 0 and vmmcache.sleep_state() == {}
""")
        self.fails("import vmmcache\nwith vmmcache.region('x'): pass", "no effect before vmmcache.install()")

    def test_a_tag_that_is_not_known_discards_nothing(self):
        self.does("""
with vmmcache.region('weights'):
    weights = tensor(value=3)
for keep in ('wieghts', ['weights', 'cache']):
    raises(vmmcache.VmmError, 'nothing was allocated in a region(', vmmcache.sleep, 'weights', keep=keep)
    assert asleep()['weights'] is False and holds(weights, 3)
raises(TypeError, 'a tag is a str', vmmcache.sleep, 'weights', keep=[7])
for keep in (1, 0, 7, 1.0):
    raises(TypeError, f'a tag is a str, not {keep}', vmmcache.sleep, 'weights', keep=keep)
    raises(TypeError, f'a tag is a str, not {keep}', vmmcache.sleep, keep)
    assert asleep()['weights'] is False and holds(weights, 3)
""")

    def test_a_signal_handler_may_come_at_any_time(self):
        """It may interrupt the thread that holds the lock of sleep() and wake()."""
        self.does("""
import faulthandler, signal, time
faulthandler.dump_traceback_later(20, exit=True)
tensors = [tensor(64)]
told = set()
def handle(*_):
    for call in (vmmcache.sleep, vmmcache.wake):
        try:
            call()
        except vmmcache.VmmError as error:
            told.add(str(error))
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0013)
end = time.monotonic() + 20
while not told and time.monotonic() < end:
    vmmcache.sleep()
    vmmcache.wake()
signal.setitimer(signal.ITIMER_REAL, 0)
assert told == {'a signal handler or callback cannot call sleep() or wake() within one of them'}, told
vmmcache.wake()
assert asleep() == {None: False}
""")

    def test_debug_mode_is_refused_with_everything_awake(self):
        self.does("""
with vmmcache.region('weights'):
    one = tensor(value=1)
raises(vmmcache.VmmError, 'cannot sleep', vmmcache.sleep)
assert asleep() == {None: False, 'weights': False} and holds(one, 1)
""", VMM_DEBUG="on")

    def test_child_of_a_fork_is_refused(self):
        self.does("""
import os
one = tensor()
if os.fork() == 0:
    raises(vmmcache.VmmError, 'fork', vmmcache.region('x').__enter__)
    os._exit(0 if vmmcache.sleep() == 0 else 1)
assert os.wait()[1] == 0
""")


class CompactTest(ProgramTest):
    def test_memory_that_few_tensors_pin_is_released(self):
        self.succeeds(BEGIN + """
assert vmmcache.compact() == 0
base = tensor(64)
large = tensor(96)  # its chunks are large
del base
torch.cuda.empty_cache()
del large
blocks = [tensor(3, number) for number in range(32)]
blocks = blocks[::2]
torch.cuda.empty_cache()
before, synchronized = vmmcache.memory_reserved(), torch._C.synchronized
released = vmmcache.compact()
assert released == before - vmmcache.memory_reserved() >= 16 * MIB, (before, released)
assert torch._C.synchronized > synchronized
assert all(holds(one, number * 2) for number, one in enumerate(blocks))
assert vmmcache.compact(budget_ms=1) == 0
for budget, kind in ((-1, ValueError), (1 << 32, ValueError), (0.5, TypeError)):  # 2^32 would be 0, no bound
    raises(kind, 'budget_ms', vmmcache.compact, budget_ms=budget)
""", VMM_FOOTPRINT="any")


if __name__ == "__main__":
    unittest.main()
