/*
 * What the programs of the guide need besides libvmmcache. Each gpu_ function stands for a call of the CUDA runtime,
 * which its comment names, so that the programs build and run without CUDA: with VMM_DRIVER=host the work is done by
 * the calling thread, else libcuda does it on device 0.
 *
 * Any failure ends the program with status 1 and one line.
 */
#ifndef VMM_GUIDE_GPU_H
#define VMM_GUIDE_GPU_H

#include <stdio.h>
#include <stdlib.h>
#include <vmmcache/vmmcache.h>

/* Ends the program unless the status is VMM_OK. */
void check(vmm_status status);

/* Ends the program unless the condition holds: what a program of the guide claims is true. */
#define EXPECT(condition) expect((condition), #condition, __FILE__, __LINE__)
void expect(int is_true, const char *condition, const char *file, int line);

vmm_stream gpu_stream_create(void);                            /* cudaStreamCreate() */
void gpu_stream_destroy(vmm_stream stream);                    /* cudaStreamDestroy() */
void gpu_stream_wait(vmm_stream waiting, vmm_stream awaited);  /* an event: record, then wait */
void gpu_fill(void *to, int byte, size_t bytes, vmm_stream s); /* cudaMemsetAsync(), or a kernel */
void gpu_copy(void *to, const void *from, size_t bytes, vmm_stream s); /* cudaMemcpyAsync() */
int gpu_byte(const void *at, vmm_stream s); /* one byte, once the stream's work is done */

struct gpu_graph;
void gpu_capture_begin(vmm_stream stream);            /* cudaStreamBeginCapture() */
struct gpu_graph *gpu_capture_end(vmm_stream stream); /* ...EndCapture(), Instantiate() */
void gpu_graph_launch(struct gpu_graph *graph, vmm_stream stream); /* cudaGraphLaunch() */
void gpu_graph_destroy(
    struct gpu_graph *graph); /* after its work is done: cudaGraphExecDestroy() */

#endif
