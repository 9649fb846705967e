"""Memory that several streams or threads use.

Called by: checks.run().
"""
import queue
import random
import threading

import torch

from checks import expect

LONG = 2_000_000  # clock ticks, about a millisecond


def freed_on_other_threads():
    """Half of the threads allocate and fill; the others check and free, on streams of their own."""
    passed, faults = queue.Queue(maxsize=64), []

    def make(number):
        rng = random.Random(number)
        with torch.cuda.stream(torch.cuda.Stream()):
            for step in range(200):
                value = number * 1000 + step
                made = torch.full((rng.randint(1, 1 << 20),), value, device="cuda", dtype=torch.int32)
                passed.put((value, made, torch.cuda.current_stream().record_event()))
        passed.put(None)

    def take():
        with torch.cuda.stream(torch.cuda.Stream()):
            for value, made, event in iter(passed.get, None):
                torch.cuda.current_stream().wait_event(event)
                made.record_stream(torch.cuda.current_stream())
                if not bool((made == value).all()):
                    faults.append(value)
                del made

    threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
    threads += [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    expect(not faults, "%d tensors were overwritten" % len(faults))


def record_stream():
    """A side stream reads a tensor that the main stream has freed, while the main stream overwrites free memory."""
    side = torch.cuda.Stream()
    sums = []
    for number in range(50):
        x = torch.full((1 << 22,), float(number), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(LONG)
            sums.append(x.mean())
        x.record_stream(side)
        del x
        torch.full((1 << 22,), -1.0, device="cuda")
    torch.cuda.synchronize()
    found = [each.item() for each in sums]
    expect(found == [float(number) for number in range(50)], "a stream read overwritten memory")


def many_streams():
    """Each of sixteen streams fills and checks its own memory, in varying sizes."""
    rng = random.Random(3)
    streams = [torch.cuda.Stream() for _ in range(16)]
    wrong = torch.zeros(16, device="cuda", dtype=torch.int64)
    torch.cuda.synchronize()
    for _ in range(60):
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                x = torch.full((rng.randint(1, 1 << 21),), number, device="cuda", dtype=torch.int32)
                y = x + 1
                wrong[number] += (y != number + 1).sum()
                del x, y
    torch.cuda.synchronize()
    expect(int(wrong.sum()) == 0, "%d numbers were overwritten" % int(wrong.sum()))
