"""Libraries under PyTorch, and copies from and to the host.

Called by: checks.run().
"""
import torch
import torch.nn.functional as F

from checks import close, expect


def matmul():
    """cuBLAS and cuBLASLt, with workspaces of several streams."""
    for stream in [torch.cuda.current_stream()] + [torch.cuda.Stream() for _ in range(3)]:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for kind, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float64, 1e-12)):
                a, b, c = (torch.randn(511, 511, device="cuda", dtype=kind) for _ in range(3))
                close(torch.addmm(c[0], a, b), c[0].double().cpu() + a.double().cpu() @ b.double().cpu(),
                      tolerance, "matmul of %s" % kind)
                close(torch.bmm(a[None], b[None])[0], a.double().cpu() @ b.double().cpu(), tolerance,
                      "bmm of %s" % kind)


def check_conv():
    torch.backends.cudnn.allow_tf32 = False
    for size in (17, 64, 33, 96):
        conv = torch.nn.Conv2d(16, 32, 3, padding=1).cuda()
        x = torch.randn(4, 16, size, size, device="cuda", requires_grad=True)
        y = conv(x)
        y.square().sum().backward()
        reference = torch.nn.Conv2d(16, 32, 3, padding=1).double()
        reference.load_state_dict({key: value.double().cpu() for key, value in conv.state_dict().items()})
        x2 = x.detach().double().cpu().requires_grad_()
        y2 = reference(x2)
        y2.square().sum().backward()
        close(y, y2, 1e-4, "conv")
        close(x.grad, x2.grad, 1e-3, "gradient of conv")
        close(conv.weight.grad, reference.weight.grad, 1e-3, "gradient of weights")


def conv():
    torch.backends.cudnn.benchmark = False
    check_conv()


def conv_benchmark():
    """cuDNN's benchmark mode queries the allocator for the largest available block."""
    torch.backends.cudnn.benchmark = True
    check_conv()


def fft_and_solvers():
    x = torch.randn(64, 1000, device="cuda", dtype=torch.float64)
    close(torch.fft.irfft(torch.fft.rfft(x), n=1000), x, 1e-10, "fft")
    a = torch.randn(200, 200, device="cuda", dtype=torch.float64)
    close(torch.linalg.solve(a, a @ a), a, 1e-6, "solve")
    values = torch.linalg.svdvals(a)
    close(values.square().sum()[None], a.square().sum()[None], 1e-9, "svd")
    order = torch.randperm(1 << 20, device="cuda")
    expect(torch.equal(order.sort().values, torch.arange(1 << 20, device="cuda")), "sort")


def pinned_copies():
    """Asynchronous copies on a side stream, while other memory is allocated and freed."""
    side = torch.cuda.Stream()
    host = [torch.arange(1 << 20, dtype=torch.int64).add_(number).pin_memory() for number in range(4)]
    back = [torch.empty_like(each).pin_memory() for each in host]
    for _ in range(20):
        with torch.cuda.stream(side):
            for source, target in zip(host, back):
                there = source.to("cuda", non_blocking=True)
                there += 1
                target.copy_(there, non_blocking=True)
        torch.randn(1 << 20, device="cuda").sum()
        side.synchronize()
        for source, target in zip(host, back):
            expect(torch.equal(source + 1, target), "a copy has wrong numbers")


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, number):
        return torch.full((1 + number % 7, 1000), number)


def data_loader():
    """Four workers, forked after the GPU is in use, and pinned batches."""
    torch.zeros(1 << 20, device="cuda")
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=None, num_workers=4, pin_memory=True,
                                         multiprocessing_context="fork")
    for _ in range(2):
        total = 0
        for rows in loader:
            there = rows.cuda(non_blocking=True)
            total += int(F.relu(there)[0, 0])
        expect(total == sum(range(512)), "batches are missing or have wrong numbers")
