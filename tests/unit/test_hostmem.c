/* Host memory for backups: what the machine cannot hold is refused before it is used. */
#include "support/test_support.h"

#include "base/hostmem.h"

#include <stdio.h>

/* Whether the kernel grants any size, and ends a process that uses too much. */
static bool kernel_always_overcommits(void)
{
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "r");
    int mode = file == NULL ? 0 : fgetc(file);
    if (file != NULL)
        (void)fclose(file);
    return mode == '1';
}

TEST(memory_beyond_the_machine_is_refused)
{
    const size_t bytes = (size_t)1 << 45;
    void *memory = vmm__host_huge_alloc(bytes);
    assert_int_equal(memory != NULL, kernel_always_overcommits());
    vmm__host_table_free(memory, bytes);
    assert_int_equal(vmm__host_outstanding(), 0);
}

/* A table is mostly empty, so its size says nothing of what it costs. */
TEST(tables_may_exceed_the_machine)
{
    const size_t bytes = (size_t)1 << 45;
    void *table = vmm__host_table_alloc(bytes);
    assert_non_null(table);
    vmm__host_table_free(table, bytes);
    assert_int_equal(vmm__host_outstanding(), 0);
}
