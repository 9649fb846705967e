/* The same operations under libFuzzer: eight bytes of input are an operation. Built with VMM_FUZZ and Clang. */
#include "stress.h"

#include <stdlib.h>

enum { OPERATIONS_MOST = 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct stress stress = { .kind = VMM_DRIVER_SIM, .stream_count = STRESS_STREAMS };
    static struct operation operations[OPERATIONS_MOST];
    size_t count = bytes / OPERATION_BYTES;
    size_t failed_at;
    if (count > OPERATIONS_MOST)
        count = OPERATIONS_MOST;
    for (size_t i = 0; i < count; i++)
        operations[i] = operation_decode(data + i * OPERATION_BYTES);
    if (stress_run(&stress, operations, count, &failed_at))
        return 0;
    (void)fprintf(stderr, "fuzz_target: operation %zu: %s\n", failed_at, stress.trouble);
    abort();
}
