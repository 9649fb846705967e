/*
 * Every public function as the first call of a process, with a NULL cache, and as the first call on a new cache: with
 * structs of zeros, of garbage, and of every older struct_size.
 */
#define _GNU_SOURCE
#include "calls.h"
#include "stage.h"

#include "support/cache_support.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GARBAGE = 0xa5, DEADLOCK_SECONDS = 60 };

struct first {
    const char *name;
    vmm_status (*call)(vmm_cache *cache);
    vmm_status on_none; /* expected with a NULL cache */
    vmm_status on_new;  /* expected with a new cache */
};

static int visit_stop(void *context, const vmm_item *item)
{
    (void)context;
    return item != NULL;
}

static vmm_status alloc_free(vmm_cache *cache)
{
    void *block = &block;
    vmm_status status = vmm_alloc(cache, 3 * MIB, NULL, &block);
    must(status == VMM_OK || block == &block);
    return status == VMM_OK ? vmm_free(cache, block) : status;
}

static vmm_status stats_of_zeros(vmm_cache *cache)
{
    vmm_stats stats;
    memset(&stats, 0, sizeof stats);
    return vmm_stats_get(cache, &stats);
}

static vmm_status stats_of_garbage(vmm_cache *cache)
{
    vmm_stats stats;
    memset(&stats, GARBAGE, sizeof stats);
    return vmm_stats_get(cache, &stats);
}

static vmm_status item_of_zeros(vmm_cache *cache)
{
    vmm_item item;
    memset(&item, 0, sizeof item);
    return vmm_find(cache, &item, &item);
}

static vmm_status item_of_garbage(vmm_cache *cache)
{
    vmm_item item;
    memset(&item, GARBAGE, sizeof item);
    return vmm_find(cache, &item, &item);
}

static vmm_status walk(vmm_cache *cache)
{
    return vmm_walk(cache, visit_stop, NULL);
}

static vmm_status block_bytes(vmm_cache *cache)
{
    must(vmm_block_bytes(cache, 1) == (cache == NULL ? 0 : 512));
    return VMM_OK;
}

static vmm_status names(vmm_cache *cache)
{
    must((cache == NULL) <= (*vmm_last_error() == '\0'));
    must(*vmm_status_name((vmm_status)GARBAGE) != '\0');
    must(*vmm_status_text((vmm_status)-1) != '\0');
    must(*vmm_version() != '\0');
    must(vmm_stat_describe(0) != NULL);
    must(vmm_stat_describe((unsigned)sizeof(vmm_stats)) == NULL);
    must(vmm_stat_describe(UINT_MAX) == NULL);
    must(vmm_has_driver((vmm_driver_kind)GARBAGE) == 0);
    must(vmm_has_driver(driver_choice_kind()) != 0);
    return VMM_OK;
}

static vmm_status create_of_zeros(vmm_cache *cache)
{
    vmm_config config;
    vmm_cache *out = cache;
    memset(&config, 0, sizeof config);
    return vmm_create(&config, &out);
}

static vmm_status create_of_garbage(vmm_cache *cache)
{
    vmm_config config;
    vmm_cache *out = cache;
    memset(&config, GARBAGE, sizeof config);
    must_be(VMM_ERR_INVALID_ARGUMENT, vmm_create(&config, &out));
    config.struct_size = sizeof config;
    return vmm_create(&config, &out);
}

/* Every struct_size that a version may have had. The bytes after it are not the program's, and must not be read. */
static vmm_status create_of_older(vmm_cache *cache)
{
    (void)cache;
    for (size_t size = offsetof(vmm_config, limit_bytes); size <= sizeof(vmm_config); size += 8) {
        vmm_config good = stage_config();
        unsigned char *bytes = malloc(size);
        vmm_cache *out = NULL;
        must(bytes != NULL);
        memcpy(bytes, &good, size);
        memcpy(bytes, &size, sizeof size);
        must_ok(vmm_create((const vmm_config *)bytes, &out));
        must_ok(vmm_destroy(out));
        free(bytes);
    }
    return VMM_OK;
}

#define INVALID VMM_ERR_INVALID_ARGUMENT
#define UNKNOWN VMM_ERR_UNKNOWN_POINTER

/* Beside the calls of the table. */
static const struct first firsts[] = {
    { "vmm_alloc, vmm_free", alloc_free, INVALID, VMM_OK },
    { "vmm_stats_get of zeros", stats_of_zeros, INVALID, INVALID },
    { "vmm_stats_get of garbage", stats_of_garbage, INVALID, INVALID },
    { "vmm_find into zeros", item_of_zeros, INVALID, INVALID },
    { "vmm_find into garbage", item_of_garbage, INVALID, INVALID },
    { "vmm_walk that stops", walk, INVALID, VMM_OK },
    { "vmm_block_bytes", block_bytes, VMM_OK, VMM_OK },
    { "vmm_destroy", vmm_destroy, VMM_OK, VMM_OK },
    { "names and versions", names, VMM_OK, VMM_OK },
    { "vmm_create of zeros", create_of_zeros, INVALID, INVALID },
    { "vmm_create of garbage", create_of_garbage, INVALID, INVALID },
    { "vmm_create of older structs", create_of_older, VMM_OK, VMM_OK },
};
enum { FIRSTS = sizeof firsts / sizeof firsts[0] };

/* The table's calls come first. */
enum { ALL = CALLS + FIRSTS };

static const char *first_name(unsigned number)
{
    return number < CALLS ? call_abouts[number].function : firsts[number - CALLS].name;
}

/* Stays until the process ends. CUDA may end it when it is asked about a handle that is no stream. */
static vmm_stream stream_make(bool must_exist)
{
    vmm_stream stream = (vmm_stream)(uintptr_t)8;
    if (must_exist && driver_choice_kind() == VMM_DRIVER_CUDA)
        must_ok(vmm__driver_stream_create(driver_choice_open(0), &stream));
    return stream;
}

static void table_call(enum call call, vmm_cache *cache)
{
    const struct call_about *about = &call_abouts[call];
    struct call_target target = { cache, NULL, &target, stream_make(cache != NULL) };
    vmm_status wanted = cache == NULL || about->takes_pool ? INVALID : about->on_new;
    must_be(wanted, call_make(call, &target));
}

static void first_call(unsigned number, bool has_cache)
{
    vmm_cache *cache = NULL;
    vmm_config config = stage_config();
    const struct first *first = &firsts[number < CALLS ? 0 : number - CALLS];
    if (has_cache)
        must_ok(vmm_create(&config, &cache));
    if (number < CALLS)
        table_call((enum call)number, cache);
    else
        must_be(has_cache ? first->on_new : first->on_none, first->call(cache));
    if (number < CALLS || first->call != vmm_destroy)
        must_ok(vmm_destroy(cache));
}

/* Opens the driver if there is no number. */
static int child_run(int argc, char **argv, const unsigned *number, bool has_cache)
{
    int status = 0;
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(DEADLOCK_SECONDS);
        if (number == NULL)
            driver_choice_read(argc, argv);
        else
            first_call(*number, has_cache);
        exit(0); /* runs the handlers of sanitizers, which may change the status */
    }
    bool has_ended = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
    return has_ended ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
    int failures = 0;
    driver_choice_parse(argc, argv);
    int tried = child_run(argc, argv, NULL, false);
    if (tried != 0)
        return tried;
    for (unsigned i = 0; i < 2 * ALL; i++) {
        unsigned number = i / 2;
        if (child_run(argc, argv, &number, i % 2 != 0) == 0)
            continue;
        (void)printf("FAILED: %s, first on %s cache\n", first_name(number),
                     i % 2 != 0 ? "a new" : "no");
        failures++;
    }
    (void)printf("%d first calls, %d failed\n", 2 * ALL, failures);
    return failures != 0;
}
