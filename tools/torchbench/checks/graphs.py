"""CUDA graphs and their pools.

Called by: checks.run().
"""
import copy
import gc
import threading

import torch

from checks import close, expect

SIDE = 1024


def work(x):
    """Allocates and frees temporary tensors."""
    y = x @ x
    for _ in range(3):
        y = torch.tanh(y @ x) + x
    return y


def capture(x, **more):
    """A graph of work(x), and its output."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **more):
        y = work(x)
    return graph, y


def churn():
    """Overwrites free memory with NaN."""
    kept = [torch.full((size,), float("nan"), device="cuda")
            for size in (100, 10_000, SIDE * SIDE, 5 * SIDE * SIDE, 40 * SIDE * SIDE)]
    torch.cuda.synchronize()
    return kept


def check_replay(graph, x, y, rounds=5):
    for _ in range(rounds):
        x.copy_(torch.randn(SIDE, SIDE, device="cuda") / 32)
        kept = churn()
        graph.replay()
        found = y.clone()
        close(found, work(x), 1e-5, "replay")
        del kept


def graph_replay():
    x = torch.zeros(SIDE, SIDE, device="cuda")
    graph, y = capture(x)
    check_replay(graph, x, y)
    torch.cuda.empty_cache()
    check_replay(graph, x, y)


def graph_shared_pool():
    """Two graphs with one pool, replayed in the order of their capture."""
    x = torch.zeros(SIDE, SIDE, device="cuda")
    first, y = capture(x)
    second, z = capture(y, pool=first.pool())
    for _ in range(5):
        x.copy_(torch.randn(SIDE, SIDE, device="cuda") / 32)
        kept = churn()
        first.replay()
        second.replay()
        found = z.clone()
        close(found, work(work(x)), 1e-4, "second graph")
        del kept


def graph_side_stream():
    """A capture that forks to another stream and calls record_stream for it."""
    x = torch.zeros(SIDE, SIDE, device="cuda")
    work(x)
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a = x * 2
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            b = work(a)
        a.record_stream(side)
        del a
        c = work(x)
        torch.cuda.current_stream().wait_stream(side)
        b.record_stream(torch.cuda.current_stream())
        out = b + c
    for _ in range(5):
        x.copy_(torch.randn(SIDE, SIDE, device="cuda") / 64)
        kept = churn()
        graph.replay()
        found = out.clone()
        close(found, work(x * 2) + work(x), 1e-5, "forked graph")
        del kept


def graph_callables():
    """torch.cuda.make_graphed_callables: forward and backward as graphs."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(SIDE, SIDE), torch.nn.GELU(),
                                torch.nn.Linear(SIDE, SIDE)).cuda()
    x = torch.randn(64, SIDE, device="cuda")
    other = copy.deepcopy(model)  # a capture fails if a parameter's gradient was accumulated on another stream
    eager = other(x).square().mean()
    eager.backward()
    wanted = [each.grad for each in other.parameters()]
    graphed = torch.cuda.make_graphed_callables(model, (torch.randn(64, SIDE, device="cuda"),))
    for _ in range(3):
        model.zero_grad(set_to_none=True)
        kept = churn()
        loss = graphed(x).square().mean()
        loss.backward()
        close(loss[None], eager[None], 1e-5, "loss")
        for each, grad in zip(model.parameters(), wanted):
            close(each.grad, grad, 1e-4, "gradient")
        del kept


def graph_beside_thread():
    """Another thread allocates, frees and waits while a capture is under way."""
    x = torch.zeros(SIDE, SIDE, device="cuda")
    ended, faults = threading.Event(), []

    def beside():
        with torch.cuda.stream(torch.cuda.Stream()):
            try:
                while not ended.is_set():
                    kept = [torch.full((1 << 18,), number, device="cuda") for number in range(8)]
                    if any(int(each[-1]) != number for number, each in enumerate(kept)):
                        faults.append("overwritten")
            except RuntimeError as error:
                faults.append(str(error))

    thread = threading.Thread(target=beside)
    thread.start()
    try:
        for _ in range(5):
            graph, y = capture(x, capture_error_mode="thread_local")
    finally:
        ended.set()
        thread.join()
    expect(not faults, "the other thread: %s" % faults[:1])
    check_replay(graph, x, y)


def graph_released():
    """A graph's memory is released after the graph and its output are deleted."""
    x = torch.zeros(SIDE, SIDE, device="cuda")
    work(x)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    graphs = [capture(x) for _ in range(10)]
    torch.cuda.synchronize()
    most = torch.cuda.memory_reserved()
    expect(most > before, "graphs took no memory")
    del graphs
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    after = torch.cuda.memory_reserved()
    print("reserved: %d MiB before, %d with graphs, %d after" % (before >> 20, most >> 20, after >> 20))
    expect(after - before <= (most - before) // 4, "memory of deleted graphs stays reserved")


def graph_failed_capture():
    """The allocator still works after a failed capture."""
    x = torch.zeros(SIDE, SIDE, device="cuda")
    work(x)
    graph = torch.cuda.CUDAGraph()
    message = ""
    try:
        with torch.cuda.graph(graph):
            work(x).sum().item()
    except RuntimeError as error:
        message = str(error)
    expect(message, "a capture with a wait did not fail")
    del graph
    gc.collect()
    torch.cuda.synchronize()
    graph, y = capture(x)
    check_replay(graph, x, y)


def mem_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.full((1 << 20,), 3.0, device="cuda")
    y = torch.full((1 << 20,), 4.0, device="cuda")
    expect(float((x + y).mean()) == 7.0, "numbers were overwritten")
