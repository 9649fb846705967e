/* The stand-ins for the CUDA runtime: see gpu.h. */
#define _GNU_SOURCE
#include "gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

enum { GRAPH_FILLS = 16 };

struct fill {
    void *to;
    int byte;
    size_t bytes;
};

/* On the host driver a graph is the fills that it captured. */
struct gpu_graph {
    void *executable;
    unsigned count;
    struct fill fills[GRAPH_FILLS];
};

/* X(name, exported name, arguments) */
#define GPU_CALL_MAP(X)                                                                            \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(retain, "cuDevicePrimaryCtxRetain", (void **out, int device))                                \
    X(push, "cuCtxPushCurrent_v2", (void *context))                                                \
    X(stream_create, "cuStreamCreate", (vmm_stream * out, unsigned flags))                         \
    X(stream_destroy, "cuStreamDestroy_v2", (vmm_stream stream))                                   \
    X(stream_wait, "cuStreamWaitEvent", (vmm_stream stream, void *event, unsigned flags))          \
    X(stream_synchronize, "cuStreamSynchronize", (vmm_stream stream))                              \
    X(event_create, "cuEventCreate", (void **out, unsigned flags))                                 \
    X(event_record, "cuEventRecord", (void *event, vmm_stream stream))                             \
    X(event_destroy, "cuEventDestroy_v2", (void *event))                                           \
    X(fill, "cuMemsetD8Async", (uint64_t to, unsigned char byte, size_t bytes, vmm_stream stream)) \
    X(copy, "cuMemcpyDtoDAsync_v2", (uint64_t to, uint64_t from, size_t bytes, vmm_stream stream)) \
    X(read, "cuMemcpyDtoH_v2", (void *to, uint64_t from, size_t bytes))                            \
    X(capture_begin, "cuStreamBeginCapture_v2", (vmm_stream stream, int mode))                     \
    X(capture_end, "cuStreamEndCapture", (vmm_stream stream, void **graph))                        \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (void **out, void *graph, uint64_t flags)) \
    X(graph_destroy, "cuGraphDestroy", (void *graph))                                              \
    X(graph_launch, "cuGraphLaunch", (void *executable, vmm_stream stream))                        \
    X(executable_destroy, "cuGraphExecDestroy", (void *executable))

static struct {
    void *library;
    void *context;
#define GPU_MEMBER(name, exported, arguments) int(*name) arguments;
    GPU_CALL_MAP(GPU_MEMBER)
#undef GPU_MEMBER
} gpu;

static pthread_once_t gpu_once = PTHREAD_ONCE_INIT;
static _Thread_local struct gpu_graph *capturing;

static void stop(const char *what, const char *why)
{
    (void)fprintf(stderr, "%s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

void check(vmm_status status)
{
    if (status != VMM_OK)
        stop(vmm_status_name(status), vmm_last_error());
}

void expect(int is_true, const char *condition, const char *file, int line)
{
    if (is_true)
        return;
    (void)fprintf(stderr, "%s:%d: ", file, line);
    stop("not true", condition);
}

static void check_cuda(const char *call, int result)
{
    if (result == 0)
        return;
    (void)fprintf(stderr, "%s gave %d: ", call, result);
    stop("libcuda", "a call failed");
}

#define CUDA(name, ...)                                                                            \
    (enter_context(), find_call(#name, gpu.name != NULL), check_cuda(#name, gpu.name(__VA_ARGS__)))

static void find_call(const char *name, int is_found)
{
    if (!is_found)
        stop(name, "libcuda does not have it");
}

static void open_library(void)
{
    gpu.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (gpu.library == NULL)
        stop("libcuda.so.1", "cannot be opened");
    void *found;
#define GPU_FIND(name, exported, arguments)                                                        \
    found = dlsym(gpu.library, exported);                                                          \
    memcpy(&gpu.name, &found, sizeof found);
    GPU_CALL_MAP(GPU_FIND)
#undef GPU_FIND
    find_call("cuInit", gpu.init != NULL && gpu.retain != NULL && gpu.push != NULL);
    check_cuda("cuInit", gpu.init(0));
    check_cuda("cuDevicePrimaryCtxRetain", gpu.retain(&gpu.context, 0));
}

/* Makes device 0 current on this thread, once. */
static void enter_context(void)
{
    static _Thread_local int has_entered;
    (void)pthread_once(&gpu_once, open_library);
    if (!has_entered)
        check_cuda("cuCtxPushCurrent", gpu.push(gpu.context));
    has_entered = 1;
}

static int on_host(void)
{
    const char *driver = getenv("VMM_DRIVER");
    return driver != NULL && strcmp(driver, "host") == 0;
}

vmm_stream gpu_stream_create(void)
{
    vmm_stream stream = NULL;
    if (!on_host())
        CUDA(stream_create, &stream, 0);
    else if ((stream = malloc(1)) == NULL)
        stop("malloc", "out of memory");
    return stream;
}

void gpu_stream_destroy(vmm_stream stream)
{
    if (on_host())
        free(stream);
    else
        CUDA(stream_destroy, stream);
}

void gpu_stream_wait(vmm_stream waiting, vmm_stream awaited)
{
    enum { WITHOUT_TIMES = 2 };
    void *event;
    if (on_host())
        return;
    CUDA(event_create, &event, WITHOUT_TIMES);
    CUDA(event_record, event, awaited);
    CUDA(stream_wait, waiting, event, 0);
    CUDA(event_destroy, event);
}

void gpu_fill(void *to, int byte, size_t bytes, vmm_stream s)
{
    if (!on_host()) {
        CUDA(fill, (uintptr_t)to, (unsigned char)byte, bytes, s);
    } else if (capturing != NULL) {
        EXPECT(capturing->count < GRAPH_FILLS);
        capturing->fills[capturing->count++] = (struct fill){ to, byte, bytes };
    } else {
        memset(to, byte, bytes);
    }
}

void gpu_copy(void *to, const void *from, size_t bytes, vmm_stream s)
{
    if (on_host())
        memcpy(to, from, bytes);
    else
        CUDA(copy, (uintptr_t)to, (uintptr_t)from, bytes, s);
}

int gpu_byte(const void *at, vmm_stream s)
{
    unsigned char byte;
    if (on_host())
        return *(const unsigned char *)at;
    CUDA(stream_synchronize, s);
    CUDA(read, &byte, (uintptr_t)at, 1);
    return byte;
}

void gpu_capture_begin(vmm_stream stream)
{
    enum { THREAD_LOCAL_MODE = 1 };
    capturing = calloc(1, sizeof *capturing);
    if (capturing == NULL)
        stop("calloc", "out of memory");
    if (!on_host())
        CUDA(capture_begin, stream, THREAD_LOCAL_MODE);
}

struct gpu_graph *gpu_capture_end(vmm_stream stream)
{
    struct gpu_graph *graph = capturing;
    capturing = NULL;
    if (on_host())
        return graph;
    void *captured;
    CUDA(capture_end, stream, &captured);
    CUDA(graph_instantiate, &graph->executable, captured, 0);
    CUDA(graph_destroy, captured);
    return graph;
}

void gpu_graph_launch(struct gpu_graph *graph, vmm_stream stream)
{
    if (!on_host())
        CUDA(graph_launch, graph->executable, stream);
    for (unsigned i = 0; i < graph->count; i++)
        memset(graph->fills[i].to, graph->fills[i].byte, graph->fills[i].bytes);
}

void gpu_graph_destroy(struct gpu_graph *graph)
{
    if (!on_host())
        CUDA(executable_destroy, graph->executable);
    free(graph);
}
