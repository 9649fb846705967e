/*
 * Processes that claim from each other all the time, and that are killed at random moments.
 *
 * usage: neighbour_kills KILLS [CLAIMS]
 *
 * CLAIMS: they make at least so many, about as many before each kill; default: as many as there are then.
 *
 * Three processes allocate, fill, check and free blocks of random sizes, on a device that holds about half of what they
 * want. At the end no byte was wrong, no request waited much longer than its deadline, every slot served again, and
 * nothing is left: no memory on the device, no file.
 */
#define _GNU_SOURCE
#include "life/child.h"

#include "base/time.h"
#include "driver/driver.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DEVICE (96 * MIB)
enum { WORKERS = 3, BLOCKS = 8, GRANULES_MOST = 12, WAIT_MS = 100 };
enum { SLACK_MS = 4000 }; /* of a machine that runs other tests, too */

static struct shared {
    _Atomic bool stops;
    _Atomic uint64_t requests;
    _Atomic uint64_t claims;
    _Atomic uint64_t failures;   /* requests that were out of memory */
    _Atomic uint64_t longest_ns; /* of the waits of one request */
    _Atomic uint64_t begun;      /* workers that got a slot */
} * shared;

struct owned {
    uint64_t *words;
    size_t count;
};

static int self_count(void *context, const vmm_neighbour *neighbour)
{
    *(unsigned *)context += neighbour->is_self != 0;
    return 0;
}

static vmm_cache *cache_open(void)
{
    vmm_config config = CONFIG(.driver = VMM_DRIVER_HOST, .device_bytes = DEVICE,
                               .neighbours = VMM_ON, .neighbours_wait_ms = WAIT_MS);
    vmm_cache *cache = NULL;
    unsigned slots = 0;
    CHILD_REQUIRES(vmm_create(&config, &cache) == VMM_OK);
    CHILD_REQUIRES(vmm_neighbours_walk(cache, self_count, &slots) == VMM_OK && slots == 1);
    atomic_fetch_add(&shared->begun, 1);
    return cache;
}

static vmm_stats stats_read(vmm_cache *cache)
{
    vmm_stats stats = VMM_STATS_INIT;
    CHILD_REQUIRES(vmm_stats_get(cache, &stats) == VMM_OK);
    return stats;
}

static void longest_note(uint64_t ns)
{
    uint64_t longest = atomic_load(&shared->longest_ns);
    while (ns > longest && !atomic_compare_exchange_weak(&shared->longest_ns, &longest, ns))
        continue;
}

/* The first word of each page, which tells whose it is. */
static void words_fill(const struct owned *block, uint64_t word)
{
    for (size_t i = 0; i < block->count; i += 512)
        block->words[i] = word + i;
}

static bool words_are(const struct owned *block, uint64_t word)
{
    bool are = true;
    for (size_t i = 0; i < block->count; i += 512)
        are = are && block->words[i] == word + i;
    return are;
}

static uint64_t word_of(size_t block)
{
    return ((uint64_t)getpid() << 32) + (block << 24);
}

/* Frees a block, after a look at it, or makes it. */
static void block_turn(vmm_cache *cache, struct owned *block, size_t number, unsigned random)
{
    void *made = NULL;
    if (block->words != NULL) {
        CHILD_REQUIRES(words_are(block, word_of(number)));
        CHILD_REQUIRES(vmm_free(cache, block->words) == VMM_OK);
        block->words = NULL;
        return;
    }
    size_t bytes = (1 + random % GRANULES_MOST) * 2 * MIB;
    vmm_stats before = stats_read(cache);
    vmm_status status = vmm_alloc(cache, bytes, NULL, &made);
    vmm_stats after = stats_read(cache);
    longest_note(after.neighbour_wait_ns - before.neighbour_wait_ns);
    atomic_fetch_add(&shared->claims, after.neighbour_claims - before.neighbour_claims);
    atomic_fetch_add(&shared->requests, 1);
    CHILD_REQUIRES(status == VMM_OK || status == VMM_ERR_DEVICE_OOM);
    atomic_fetch_add(&shared->failures, status != VMM_OK);
    *block = (struct owned){ .words = made, .count = bytes / sizeof(uint64_t) };
    if (made != NULL)
        words_fill(block, word_of(number));
}

static void works(void *context)
{
    struct owned blocks[BLOCKS] = { { NULL, 0 } };
    unsigned seed = *(unsigned *)context;
    vmm_cache *cache = cache_open();
    while (!atomic_load(&shared->stops)) {
        size_t number = (size_t)rand_r(&seed) % BLOCKS;
        block_turn(cache, &blocks[number], number, (unsigned)rand_r(&seed));
    }
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
}

static pid_t worker_begun(unsigned *seed)
{
    *seed += 1;
    pid_t child = fork();
    if (child != 0)
        return child;
    works(seed);
    child_leave();
}

/* A random moment, once so many claims were made. */
static void moment_await(unsigned *seed, uint64_t claims)
{
    do
        (void)usleep(1000 + (unsigned)rand_r(seed) % 60000);
    while (atomic_load(&shared->claims) < claims);
}

/* Returns the number of workers that ended by themselves while they should not. */
static unsigned workers_kill(pid_t *workers, unsigned kills, uint64_t claims, unsigned *seed)
{
    unsigned broken = 0;
    for (unsigned i = 0; i < kills; i++) {
        int status = 0;
        pid_t *worker = &workers[(unsigned)rand_r(seed) % WORKERS];
        moment_await(seed, claims * (i + 1) / kills);
        (void)kill(*worker, SIGKILL);
        (void)waitpid(*worker, &status, 0);
        broken += !WIFSIGNALED(status);
        *worker = worker_begun(seed);
    }
    return broken;
}

static bool device_is_free(const char *device)
{
    struct driver_options options = { .device_bytes = DEVICE, .file = device };
    struct driver *driver;
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 1;
    if (vmm__driver_host_open(&options, &driver) != VMM_OK)
        return false;
    (void)!vmm__driver_memory_info(driver, &free_bytes, &total_bytes);
    vmm__driver_close(driver);
    return free_bytes == total_bytes;
}

static int verdict(unsigned kills, unsigned broken, const char *device, const char *folder)
{
    uint64_t longest_ms = atomic_load(&shared->longest_ns) / 1000000;
    bool is_free = device_is_free(device);
    bool is_empty = unlink(device) == 0 && rmdir(folder) == 0;
    (void)printf("%u kills, %llu requests, %llu claims, %llu out of memory; the longest wait "
                 "took %llu ms of %d; %u workers broken; the device is %s, the folder %s\n",
                 kills, (unsigned long long)shared->requests, (unsigned long long)shared->claims,
                 (unsigned long long)shared->failures, (unsigned long long)longest_ms, WAIT_MS,
                 broken, is_free ? "free" : "NOT free", is_empty ? "empty" : "NOT empty");
    bool is_busy = shared->claims > kills / 4 && shared->failures < shared->requests / 2;
    return is_busy && is_free && is_empty && broken == 0 && shared->begun > kills / 2 &&
                   longest_ms <= WAIT_MS + SLACK_MS
               ? 0
               : 1;
}

int main(int argc, char **argv)
{
    char folder[] = "/dev/shm/neighbour_kills.XXXXXX";
    char device[64];
    pid_t workers[WORKERS];
    unsigned seed = 1;
    unsigned kills = argc == 2 || argc == 3 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    uint64_t claims = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (kills == 0 || shared == MAP_FAILED || mkdtemp(folder) == NULL)
        return 2;
    (void)snprintf(device, sizeof device, "%s/device", folder);
    if (setenv("VMM_HOST_DEVICE", device, 1) + setenv("VMM_NEIGHBOURS_DIR", folder, 1) != 0)
        return 2;
    for (int i = 0; i < WORKERS; i++)
        workers[i] = worker_begun(&seed);
    unsigned broken = workers_kill(workers, kills, claims, &seed);
    atomic_store(&shared->stops, true);
    for (int i = 0; i < WORKERS; i++)
        broken += !child_ended(workers[i], 0);
    return verdict(kills, broken, device, folder);
}
