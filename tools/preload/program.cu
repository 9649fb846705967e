/*
 * A program of the CUDA runtime for tools/preload/check.py, which runs it with and without libvmmcache_preload and
 * compares what it prints: usage program PART. It knows nothing of the library. The build is with the static or the
 * shared runtime. A part prints results that must not depend on the allocator, `times` prints times.
 */
#include <cuda.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace
{
constexpr size_t MIB = size_t(1) << 20;

#define CHECK(call) check((call), #call, __LINE__)

void check(cudaError_t result, const char *call, int line)
{
    if (result == cudaSuccess)
        return;
    std::printf("line %d: %s: %s\n", line, call, cudaGetErrorName(result));
    std::exit(1);
}

/* ---- Kernels --------------------------------------------------------------------------------- */

__device__ uint32_t word_of(uint32_t seed, size_t index)
{
    return seed * 2654435761u + uint32_t(index) * 40503u;
}

__global__ void fill(uint32_t *words, size_t count, uint32_t seed)
{
    size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += step)
        words[i] = word_of(seed, i);
}

__global__ void count_wrong(const uint32_t *words, size_t count, uint32_t seed, unsigned *wrong)
{
    size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += step)
        if (words[i] != word_of(seed, i))
            atomicAdd(wrong, 1u);
}

__global__ void spin(uint64_t ns, unsigned *flag)
{
    uint64_t begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < ns);
    if (flag != nullptr)
        *flag = 1;
}

__global__ void fault(uint32_t *word)
{
    *word = 1;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

unsigned *wrong_words; /* managed */

struct block {
    uint32_t *words = nullptr;
    size_t bytes = 0;
    uint32_t seed = 0;
};

void block_fill(const block &block, cudaStream_t stream)
{
    fill<<<256, 256, 0, stream>>>(block.words, block.bytes / 4, block.seed);
    CHECK(cudaGetLastError());
}

void block_check(const block &block, cudaStream_t stream)
{
    count_wrong<<<256, 256, 0, stream>>>(block.words, block.bytes / 4, block.seed, wrong_words);
    CHECK(cudaGetLastError());
}

block block_make(size_t bytes, uint32_t seed, cudaStream_t stream)
{
    block made;
    made.bytes = bytes;
    made.seed = seed;
    CHECK(cudaMalloc(&made.words, bytes));
    block_fill(made, stream);
    return made;
}

void wrong_print(const char *what)
{
    CHECK(cudaDeviceSynchronize());
    std::printf("%s: %u words are wrong\n", what, *wrong_words);
    *wrong_words = 0;
}

cudaStream_t stream_make()
{
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

void blocks_churn(uint32_t seed, cudaStream_t stream)
{
    std::mt19937 random(seed);
    std::vector<block> live(16);
    for (int round = 0; round < 400; round++) {
        block &slot = live[random() % live.size()];
        if (slot.words != nullptr) {
            block_check(slot, stream);
            CHECK(cudaFree(slot.words));
        }
        size_t bytes = round % 3 == 0 ? 4 + random() % 4096 : 4 + random() % (24 * MIB);
        slot = block_make(bytes, random(), stream);
    }
    for (const block &slot : live) {
        if (slot.words != nullptr)
            block_check(slot, stream);
        CHECK(cudaFree(slot.words));
    }
}

/* ---- Parts ----------------------------------------------------------------------------------- */

void part_blocks()
{
    blocks_churn(1, nullptr);
    wrong_print("blocks");
    void *nothing = nullptr;
    std::printf("0 bytes: %s, %s\n", cudaGetErrorName(cudaMalloc(&nothing, 0)),
                cudaGetErrorName(cudaFree(nullptr)));
}

void part_threads()
{
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 8; i++)
        threads.emplace_back([i] {
            cudaStream_t stream = stream_make();
            blocks_churn(i + 10, stream);
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaStreamDestroy(stream));
        });
    for (std::thread &thread : threads)
        thread.join();
    wrong_print("threads");
}

size_t free_now()
{
    size_t free_bytes, total;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

/* Within what other memory of the process and of the cache may take meanwhile. */
bool is_near(size_t left, size_t right)
{
    return left < right + 96 * MIB && right < left + 96 * MIB;
}

void part_queries()
{
    char *block;
    CHECK(cudaMalloc(&block, MIB));
    CHECK(cudaFree(block));
    size_t before = free_now();
    CHECK(cudaMalloc(&block, 1024 * MIB));
    size_t during = free_now();
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, block + 4096));
    std::printf("type %d, device %d, own address %d, host %d\n", int(attributes.type),
                attributes.device, attributes.devicePointer == block + 4096,
                attributes.hostPointer != nullptr);
    void *range = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &range, 12000, cudaEnableDefault,
                                           &found));
    CUdeviceptr base = 0;
    size_t bytes = 0;
    auto call = reinterpret_cast<CUresult (*)(CUdeviceptr *, size_t *, CUdeviceptr)>(range);
    int result = call(&base, &bytes, CUdeviceptr(block) + 12345);
    std::printf("range: %d, own %d, %zu bytes\n", result, base == CUdeviceptr(block), bytes);
    CHECK(cudaFree(block));
    std::printf("free memory: %d %d\n", is_near(before - 1024 * MIB, during),
                is_near(before, free_now()));
}

void part_pitch()
{
    char *rows;
    size_t pitch;
    std::vector<char> host(1000 * 77), back(1000 * 77);
    for (size_t i = 0; i < host.size(); i++)
        host[i] = char(i * 7);
    CHECK(cudaMallocPitch(&rows, &pitch, 1000, 77));
    CHECK(cudaMemcpy2D(rows, pitch, host.data(), 1000, 1000, 77, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2D(back.data(), 1000, rows, pitch, 1000, 77, cudaMemcpyDeviceToHost));
    std::printf("pitch %zu, equal %d\n", pitch, host == back);
    CHECK(cudaFree(rows));
    cudaPitchedPtr cube;
    CHECK(cudaMalloc3D(&cube, make_cudaExtent(300, 20, 5)));
    CHECK(cudaMemset3D(cube, 3, make_cudaExtent(300, 20, 5)));
    std::printf("3D pitch %zu\n", cube.pitch);
    CHECK(cudaFree(cube.ptr));
}

/* cudaFree() returns after work on any stream. */
void part_free_waits()
{
    cudaStream_t stream = stream_make();
    unsigned *flag;
    void *block;
    CHECK(cudaHostAlloc(&flag, sizeof *flag, cudaHostAllocMapped));
    CHECK(cudaMalloc(&block, 8 * MIB));
    *flag = 0;
    spin<<<1, 1, 0, stream>>>(300000000, flag);
    CHECK(cudaFree(block));
    std::printf("work has ended: %u\n", *static_cast<volatile unsigned *>(flag));
    CHECK(cudaFreeHost(flag));
    CHECK(cudaStreamDestroy(stream));
}

/* Blocks travel between streams, and are freed on the other one. */
void part_streams()
{
    cudaStream_t one = stream_make(), two = stream_make();
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (uint32_t round = 0; round < 500; round++) {
        block block;
        block.bytes = 4 * (1 + round * 7919 % (4 * MIB));
        block.seed = round;
        CHECK(cudaMallocAsync(&block.words, block.bytes, one));
        block_fill(block, one);
        CHECK(cudaEventRecord(event, one));
        CHECK(cudaStreamWaitEvent(two, event, 0));
        block_check(block, two);
        CHECK(cudaFreeAsync(block.words, round % 2 == 0 ? two : one));
        if (round % 2 != 0) /* its own stream must not reuse it before the check */
            CHECK(cudaStreamSynchronize(two));
    }
    wrong_print("streams");
    CHECK(cudaStreamDestroy(one));
    CHECK(cudaStreamDestroy(two));
    cudaStream_t three = stream_make();
    void *block;
    CHECK(cudaMallocAsync(&block, MIB, three));
    CHECK(cudaFree(block));
    CHECK(cudaStreamDestroy(three));
}

/* Memory that a stream freed and still writes does not serve cudaMalloc(). */
void part_mixed()
{
    cudaStream_t busy = stream_make(), other = stream_make();
    for (uint32_t round = 0; round < 100; round++) {
        block old;
        old.bytes = 64 * MIB;
        CHECK(cudaMallocAsync(&old.words, old.bytes, busy));
        spin<<<1, 1, 0, busy>>>(500000, nullptr);
        old.seed = 1;
        block_fill(old, busy);
        CHECK(cudaFreeAsync(old.words, busy));
        block fresh = block_make(64 * MIB, 1000 + round, other);
        CHECK(cudaStreamSynchronize(busy));
        block_check(fresh, other);
        CHECK(cudaFree(fresh.words));
    }
    wrong_print("mixed");
}

void part_pools()
{
    int device;
    CHECK(cudaGetDevice(&device));
    cudaMemPool_t pool;
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    for (int made = 0; made < 2; made++) {
        if (made)
            CHECK(cudaMemPoolCreate(&pool, &properties));
        else
            CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
        cudaStream_t stream = stream_make();
        for (uint32_t round = 0; round < 50; round++) {
            block block;
            block.bytes = 4 * MIB + 4096 * round;
            block.seed = round;
            CHECK(cudaMallocFromPoolAsync(&block.words, block.bytes, pool, stream));
            block_fill(block, stream);
            block_check(block, stream);
            CHECK(cudaFreeAsync(block.words, stream));
        }
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemPoolTrimTo(pool, 0));
        CHECK(cudaStreamDestroy(stream));
        if (made)
            CHECK(cudaMemPoolDestroy(pool));
    }
    wrong_print("pools");
}

/* Allocations of a capture are nodes of the graph, and a capture survives cudaMalloc() in relaxed mode. */
void part_graphs()
{
    cudaStream_t stream = stream_make();
    block kept = block_make(4 * MIB, 5, stream), node, early = block_make(8 * MIB, 6, stream);
    CHECK(cudaStreamSynchronize(stream));
    node.bytes = 8 * MIB;
    node.seed = 9;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMallocAsync(&node.words, node.bytes, stream));
    block_fill(node, stream);
    block_check(node, stream);
    block_check(kept, stream);
    CHECK(cudaFreeAsync(node.words, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 10; i++)
        CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    block_check(early, stream);
    wrong_print("graphs");
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(kept.words));
    CHECK(cudaFree(early.words));
}

void part_other_memory()
{
    uint32_t *managed, *pinned, *device;
    CHECK(cudaMallocManaged(&managed, MIB));
    CHECK(cudaMallocHost(&pinned, MIB));
    CHECK(cudaMalloc(&device, MIB));
    fill<<<16, 256>>>(managed, MIB / 4, 1);
    CHECK(cudaDeviceSynchronize());
    std::memcpy(pinned, managed, MIB);
    CHECK(cudaMemcpy(device, pinned, MIB, cudaMemcpyHostToDevice));
    count_wrong<<<16, 256>>>(device, MIB / 4, 1, wrong_words);
    wrong_print("managed and pinned");
    cudaPointerAttributes attributes;
    for (void *pointer : { static_cast<void *>(managed), static_cast<void *>(pinned) }) {
        CHECK(cudaPointerGetAttributes(&attributes, pointer));
        std::printf("type %d\n", int(attributes.type));
    }
    CHECK(cudaFree(managed));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
}

void part_errors()
{
    void *block = nullptr;
    int on_stack = 0;
    std::printf("too large: %s\n", cudaGetErrorName(cudaMalloc(&block, size_t(1) << 46)));
    (void)cudaGetLastError();
    CHECK(cudaMalloc(&block, MIB));
    CHECK(cudaFree(block));
    std::printf("freed twice: %s\n", cudaGetErrorName(cudaFree(block)));
    (void)cudaGetLastError();
    std::printf("not device memory: %s\n", cudaGetErrorName(cudaFree(&on_stack)));
    (void)cudaGetLastError();
    CHECK(cudaMalloc(&block, MIB));
    CHECK(cudaFree(block));
    std::puts("goes on");
}

void part_fault()
{
    void *block;
    CHECK(cudaMalloc(&block, MIB));
    fault<<<1, 1>>>(reinterpret_cast<uint32_t *>(uintptr_t(64)));
    std::printf("wait: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    void *other;
    std::printf("cudaMalloc: %s\n", cudaGetErrorName(cudaMalloc(&other, MIB)));
    std::printf("cudaFree: %s\n", cudaGetErrorName(cudaFree(block)));
}

void part_reset()
{
    (void)block_make(16 * MIB, 1, nullptr);
    CHECK(cudaDeviceReset());
    CHECK(cudaMallocManaged(&wrong_words, sizeof *wrong_words));
    *wrong_words = 0;
    blocks_churn(3, nullptr);
    wrong_print("after a reset");
}

void part_ipc()
{
    void *block;
    cudaIpcMemHandle_t handle;
    CHECK(cudaMalloc(&block, 4 * MIB));
    std::printf("%s\n", cudaGetErrorName(cudaIpcGetMemHandle(&handle, block)));
    CHECK(cudaFree(block));
}

/* More than half of the memory in small blocks, every other one freed, and then large ones: what fits shows who ends
 * fragmentation. */
void part_fragments()
{
    size_t piece = 24 * MIB, count = free_now() / 10 * 8 / piece;
    std::vector<void *> pieces(count), large;
    for (void *&block : pieces)
        CHECK(cudaMalloc(&block, piece));
    for (size_t i = 0; i < count; i += 2)
        CHECK(cudaFree(pieces[i]));
    void *block;
    while (cudaMalloc(&block, 1024 * MIB) == cudaSuccess)
        large.push_back(block);
    std::printf("%zu of 1 GiB after every other block of 24 MiB of %zu was freed\n", large.size(),
                count);
}

double pair_us(size_t bytes, bool is_async)
{
    void *block;
    const int rounds = 2000;
    auto begin = std::chrono::steady_clock::now();
    for (int i = -100; i < rounds; i++) {
        if (i == 0)
            begin = std::chrono::steady_clock::now();
        CHECK(is_async ? cudaMallocAsync(&block, bytes, nullptr) : cudaMalloc(&block, bytes));
        CHECK(is_async ? cudaFreeAsync(block, nullptr) : cudaFree(block));
    }
    std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    return took.count() / rounds;
}

void part_times()
{
    std::printf("cudaMalloc and cudaFree: 1 MiB %.2f us, 64 MiB %.2f us; ", pair_us(MIB, false),
                pair_us(64 * MIB, false));
    std::printf("cudaMallocAsync and cudaFreeAsync: 1 MiB %.2f us, 64 MiB %.2f us\n",
                pair_us(MIB, true), pair_us(64 * MIB, true));
}

struct part {
    const char *name;
    void (*run)();
};

const part parts[] = {
    { "blocks", part_blocks },         { "threads", part_threads },
    { "queries", part_queries },       { "pitch", part_pitch },
    { "free_waits", part_free_waits }, { "streams", part_streams },
    { "mixed", part_mixed },           { "pools", part_pools },
    { "graphs", part_graphs },         { "other_memory", part_other_memory },
    { "errors", part_errors },         { "fault", part_fault },
    { "reset", part_reset },           { "ipc", part_ipc },
    { "fragments", part_fragments },   { "times", part_times },
};
} // namespace

int main(int count, char **arguments)
{
    for (const part &part : parts) {
        if (count != 2 || std::strcmp(arguments[1], part.name) != 0)
            continue;
        CHECK(cudaMallocManaged(&wrong_words, sizeof *wrong_words));
        *wrong_words = 0;
        part.run();
        return 0;
    }
    return 2;
}
