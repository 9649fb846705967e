/* Processes with peaks one after the other: see crowd.h. */
#include "fragtest/replay/crowd.h"

#include "api/create_on.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/time.h"
#include "fragtest/cli/interrupt.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BASE_PART = 8, STEPS = CROWD_SAMPLES / 2 };
#define MIB (UINT64_C(1) << 20)

/* A claim is served in milliseconds; on a busy machine it may take longer, which is no failure. */
enum { WAIT_MS = 2000 };

/* What a process shows of itself often enough for a sample; in the middle of a step others may give. */
enum { LOOK_US = 1000, STEP_US = 4000 };

/* Sizes of a process's blocks, again and again. */
static const uint64_t block_bytes[] = { 12 * MIB, 5 * MIB, 700 << 10, 3 * MIB, 20 * MIB, MIB };
enum { SIZES = sizeof block_bytes / sizeof block_bytes[0], BLOCKS_MOST = 4096 };

/* What the processes of a run share. */
struct stage {
    pid_t leader;
    sigset_t signals; /* that the leader blocks only for itself */
    struct crowd_run run;
    _Atomic unsigned phase;
    _Atomic unsigned done[CROWD]; /* phases */
    _Atomic uint64_t live_bytes[CROWD];
    _Atomic uint64_t reserved_bytes[CROWD];
};

struct block {
    void *address;
    uint64_t bytes;
};

/* A process. */
struct member {
    const struct crowd *crowd;
    struct stage *stage;
    struct crowd_member *result;
    unsigned number;
    struct driver *driver;
    vmm_cache *cache;
    struct block blocks[BLOCKS_MOST];
    unsigned count;
    uint64_t live_bytes;
};

bool crowd_survived(const struct crowd_run *run)
{
    bool all = true;
    for (unsigned i = 0; i < CROWD; i++)
        all = all && run->members[i].status == VMM_OK && run->members[i].mismatches == 0;
    return all;
}

/* ---- A process --------------------------------------------------------------------------------- */

static uint32_t word_of(const struct member *member, unsigned block)
{
    return (uint32_t)(block * CROWD + member->number + 1);
}

static vmm_status show(struct member *member)
{
    vmm_stats stats = VMM_STATS_INIT;
    vmm_status status = vmm_stats_get(member->cache, &stats);
    atomic_store(&member->stage->live_bytes[member->number], member->live_bytes);
    atomic_store(&member->stage->reserved_bytes[member->number], stats.reserved_bytes.current);
    member->result->peak_bytes = stats.reserved_bytes.peak;
    member->result->claims = stats.neighbour_claims;
    member->result->wait_ns = stats.neighbour_wait_ns;
    member->result->given_bytes = stats.neighbour_given_bytes;
    return status;
}

/* Only the process that has its peak samples. */
static void sample(struct member *member)
{
    struct crowd_run *run = &member->stage->run;
    (void)usleep(STEP_US);
    struct crowd_sample *taken = &run->samples[run->sample_count++];
    for (unsigned i = 0; i < CROWD; i++) {
        taken->live_bytes[i] = atomic_load(&member->stage->live_bytes[i]);
        taken->reserved_bytes[i] = atomic_load(&member->stage->reserved_bytes[i]);
    }
}

static vmm_status grow_to(struct member *member, uint64_t bytes)
{
    vmm_status status = VMM_OK;
    while (member->live_bytes < bytes && status == VMM_OK) {
        struct block *block = &member->blocks[member->count];
        block->bytes = vmm__min(block_bytes[member->count % SIZES], bytes - member->live_bytes);
        status = vmm_alloc(member->cache, block->bytes, NULL, &block->address);
        if (status == VMM_OK)
            status = vmm__driver_fill(member->driver, (uintptr_t)block->address, block->bytes,
                                      word_of(member, member->count), NULL);
        member->live_bytes += status == VMM_OK ? block->bytes : 0;
        member->count += status == VMM_OK;
    }
    return status;
}

/* Checks what it frees. */
static vmm_status shrink_to(struct member *member, uint64_t bytes)
{
    vmm_status status = VMM_OK;
    while (member->live_bytes > bytes && status == VMM_OK) {
        struct block *block = &member->blocks[--member->count];
        status = vmm__driver_check(member->driver, (uintptr_t)block->address, block->bytes,
                                   word_of(member, member->count), NULL);
        if (status == VMM_OK)
            status = vmm_free(member->cache, block->address);
        member->live_bytes -= block->bytes;
    }
    return status;
}

/* To the peak and back, in steps. */
static vmm_status peak(struct member *member)
{
    uint64_t base_bytes = member->crowd->run.options->scene_bytes / BASE_PART;
    uint64_t step_bytes = (member->crowd->run.options->scene_bytes - base_bytes) / STEPS;
    vmm_status status = VMM_OK;
    for (unsigned step = 0; step < 2 * STEPS && status == VMM_OK; step++) {
        unsigned steps = step < STEPS ? step + 1 : 2 * STEPS - 1 - step;
        if (step == STEPS - 1)
            status = grow_to(member, member->crowd->run.options->scene_bytes);
        else if (step < STEPS)
            status = grow_to(member, base_bytes + steps * step_bytes);
        else
            status = shrink_to(member, base_bytes + steps * step_bytes);
        if (status == VMM_OK)
            status = show(member);
        sample(member);
    }
    return status;
}

static vmm_status phases_live(struct member *member)
{
    struct stage *stage = member->stage;
    vmm_status status = grow_to(member, member->crowd->run.options->scene_bytes / BASE_PART);
    for (unsigned phase = 0; phase < CROWD_PHASES && status == VMM_OK; phase++) {
        while (atomic_load(&stage->phase) < phase && status == VMM_OK) {
            status = show(member);
            (void)usleep(LOOK_US);
        }
        if (status == VMM_OK && phase % CROWD == member->number)
            status = peak(member);
        member->result->phases += status == VMM_OK;
        if (status == VMM_OK)
            atomic_store(&stage->done[member->number], phase + 1);
    }
    return status == VMM_OK ? shrink_to(member, 0) : status;
}

static vmm_status member_open(struct member *member, const char *device, bool has_neighbours)
{
    struct driver_options options = { .device_bytes = member->crowd->run.limit_bytes,
                                      .file = device };
    vmm_config config = VMM_CONFIG_INIT;
    config.neighbours = has_neighbours ? VMM_ON : VMM_OFF;
    config.neighbours_wait_ms = WAIT_MS;
    vmm_status status = vmm__driver_host_open(&options, &member->driver);
    return status == VMM_OK ? vmm__cache_create_on(&config, member->driver, &member->cache)
                            : status;
}

/* The process ends when its leader does, also if that is killed; it may have been before this call. */
static void leader_follow(const struct stage *stage)
{
    interrupt_release(&stage->signals);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != stage->leader)
        _exit(1);
}

/* A program that runs out of memory ends there and then. */
static void member_main(struct member *member, const char *device, bool has_neighbours)
{
    uint64_t places = 0;
    leader_follow(member->stage);
    vmm_status status = member_open(member, device, has_neighbours);
    if (status == VMM_OK)
        status = phases_live(member);
    if (status == VMM_OK)
        status = vmm__driver_mismatches(member->driver, &places);
    if (status == VMM_OK)
        status = show(member);
    member->result->died_at = member->stage->run.sample_count;
    member->result->mismatches = places;
    member->result->status = status;
    (void)vmm_destroy(member->cache);
    _exit(0);
}

/* ---- A run ------------------------------------------------------------------------------------- */

static void children_kill(const pid_t *children)
{
    for (unsigned i = 0; i < CROWD; i++) {
        if (children[i] > 0) {
            (void)kill(children[i], SIGKILL);
            (void)waitpid(children[i], NULL, 0);
        }
    }
}

/* Begins the next phase when all that live have done theirs, until none does or a signal waits. */
static void phases_lead(struct stage *stage, pid_t *children, struct progress *progress)
{
    unsigned living = CROWD;
    while (living > 0 && !interrupt_waits()) {
        unsigned phase = atomic_load(&stage->phase);
        bool is_done = true;
        living = 0;
        for (unsigned i = 0; i < CROWD; i++) {
            if (children[i] > 0 && waitpid(children[i], NULL, WNOHANG) != 0) {
                children[i] = 0;
                atomic_store(&stage->live_bytes[i], 0);
                atomic_store(&stage->reserved_bytes[i], 0);
            }
            living += children[i] > 0;
            is_done = is_done && (children[i] == 0 || atomic_load(&stage->done[i]) > phase);
        }
        if (is_done && phase < CROWD_PHASES) {
            atomic_store(&stage->phase, phase + 1);
            progress_step(progress, phase + 1);
        }
        (void)usleep(LOOK_US);
    }
}

static void processes_run(const struct crowd *crowd, struct stage *stage, const char *device,
                          bool has_neighbours)
{
    pid_t children[CROWD];
    uint64_t begin_ns = vmm__time_ns();
    (void)fflush(NULL);
    for (unsigned i = 0; i < CROWD; i++) {
        struct member *member = calloc(1, sizeof *member);
        stage->run.members[i].status = VMM_ERR_INTERNAL; /* unless it says how it has ended */
        children[i] = member == NULL ? -1 : fork();
        if (children[i] == 0) {
            *member = (struct member){ .crowd = crowd, .stage = stage, .number = i };
            member->result = &stage->run.members[i];
            member_main(member, device, has_neighbours);
        }
        free(member);
    }
    phases_lead(stage, children, crowd->run.progress);
    children_kill(children);
    stage->run.ns = vmm__time_ns() - begin_ns;
}

static vmm_status system_failed(const char *what)
{
    return vmm__error(VMM_ERR_DRIVER, "neighbours: %s: %s", what, strerror(errno));
}

/* What processes that were killed have left. */
static void folder_remove(const char *folder)
{
    DIR *listing = opendir(folder);
    if (listing == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;)
        (void)unlinkat(dirfd(listing), entry->d_name, 0);
    (void)closedir(listing);
    (void)rmdir(folder);
}

/* In a folder of its own, which the last process must leave empty but for the device. */
static vmm_status run_in(struct crowd *crowd, unsigned number, const char *folder,
                         const sigset_t *signals)
{
    char device[64];
    struct stage *stage =
        mmap(NULL, sizeof *stage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (stage == MAP_FAILED)
        return system_failed("mmap");
    (void)snprintf(device, sizeof device, "%s/device", folder);
    if (setenv("VMM_NEIGHBOURS_DIR", folder, 1) != 0)
        return system_failed("setenv");
    stage->leader = getpid();
    stage->signals = *signals;
    processes_run(crowd, stage, device, number > 0);
    crowd->runs[number] = stage->run;
    (void)munmap(stage, sizeof *stage);
    if (interrupt_waits()) {
        folder_remove(folder);
        return vmm__error(VMM_ERR_DRIVER, "neighbours: interrupted");
    }
    if (unlink(device) != 0 || rmdir(folder) != 0)
        return system_failed(folder);
    return VMM_OK;
}

static vmm_status runs_run(struct crowd *crowd, const sigset_t *signals)
{
    struct progress *progress = crowd->run.progress;
    static const char *const names[CROWD_RUNS] = { "without neighbours", "with neighbours" };
    vmm_status status = VMM_OK;
    for (unsigned i = 0; i < CROWD_RUNS && status == VMM_OK; i++) {
        char folder[] = "/dev/shm/fragtest.XXXXXX";
        if (mkdtemp(folder) == NULL)
            return system_failed("mkdtemp");
        progress_begin(progress, CROWD_PHASES, "%s", names[i]);
        status = run_in(crowd, i, folder, signals);
        progress_end(progress);
    }
    return status;
}

vmm_status crowd_run(struct scene_run *run)
{
    struct crowd *crowd = (struct crowd *)run;
    sigset_t signals;
    run->limit_bytes = policy_limit(run->options->memory, run->options->scene_bytes);
    interrupt_hold(&signals);
    vmm_status status = runs_run(crowd, &signals);
    interrupt_release(&signals); /* one that waits takes effect here */
    run->is_good = crowd_survived(&crowd->runs[1]);
    return status;
}
