/* An undeclared use: see unrecorded.h. */
#include "fragtest/replay/unrecorded.h"

#include "base/error.h"
#include "driver/sim/sim.h"
#include "fragtest/policies/malloc_async.h"
#include "fragtest/replay/replay.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define MIB (UINT64_C(1) << 20)
#define MS  UINT64_C(1000000) /* nanoseconds */

enum { SIZES = 4, SPECIAL_SIZE = 1 /* of thread and trim */, REQUESTS = 2 };

static const uint64_t host_sizes[SIZES] = { 1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB };
static const uint64_t device_sizes[SIZES] = { 1 * MIB, 4 * MIB, 64 * MIB, 512 * MIB };

/* The reader's stream never allocates: only a declaration names it to the policy. */
enum { STREAM_OWNER, STREAM_OTHER, STREAM_READER, STREAMS };

/* The patterns of the owner and the other stream. */
enum { OWNER_WORD = 1, OTHER_WORD = 2 };

/* A row under way. */
struct stage {
    struct driver *driver;
    const struct unrecorded_row *row;
    struct policy *policy;
    vmm_stream streams[STREAMS];
    uint64_t bytes;   /* of each block of this round */
    uint64_t read_ns; /* how long the reader takes at least */
    struct policy_place held[REQUESTS + 1];
    unsigned held_count;
    uint64_t faults; /* on this driver so far */
};

static bool driver_is_host(const struct driver *driver)
{
    return strcmp(driver->ops->name, "host") == 0;
}

/* ---- A round ----------------------------------------------------------------------------------- */

/* Waits for the device. On sim, races and accesses to unmapped memory stand for wrong bytes. */
static vmm_status faults_count(struct stage *stage, uint64_t *faults)
{
    vmm_status status = vmm__driver_mismatches(stage->driver, faults);
    if (status == VMM_OK && replay_is_sim(stage->driver))
        *faults += vmm__soft_violations(stage->driver, NULL);
    return status;
}

/* Allocates a block and fills it with the stream's pattern. */
static vmm_status block_make(struct stage *stage, uint32_t stream, uint32_t word)
{
    struct policy_place *place = &stage->held[stage->held_count];
    vmm_status status = stage->row->ops->alloc(stage->policy, stage->bytes, stream, place);
    if (status != VMM_OK)
        return status;
    stage->held_count++;
    return vmm__driver_fill(stage->driver, place->address, stage->bytes, word,
                            stage->streams[stream]);
}

static vmm_status block_free(struct stage *stage)
{
    return stage->row->ops->free(stage->policy, stage->held[--stage->held_count]);
}

/* The other stream uses what it gets, and asks again: at first the policy may not know that the owner's work ended. */
static vmm_status other_ask(struct stage *stage)
{
    const struct timespec pause = { .tv_nsec = MS };
    vmm_status status = VMM_OK;
    for (unsigned i = 0; i < REQUESTS && status == VMM_OK; i++) {
        status = block_make(stage, STREAM_OTHER, OTHER_WORD);
        if (status == VMM_OK)
            status = vmm__driver_check(stage->driver, stage->held[i].address, stage->bytes,
                                       OTHER_WORD, stage->streams[STREAM_OTHER]);
        (void)nanosleep(&pause, NULL);
    }
    return status;
}

/* What another thread does, and what came of it: the last error belongs to the thread. */
struct errand {
    struct stage *stage;
    vmm_status status;
    char line[256];
};

static void *errand_main(void *argument)
{
    struct errand *errand = argument;
    errand->status = other_ask(errand->stage);
    if (errand->status != VMM_OK)
        (void)snprintf(errand->line, sizeof(errand->line), "%s", vmm_last_error());
    return NULL;
}

static vmm_status thread_ask(struct stage *stage)
{
    struct errand errand = { .stage = stage };
    pthread_t thread;
    if (pthread_create(&thread, NULL, errand_main, &errand) != 0)
        return vmm__error(VMM_ERR_HOST_OOM, "cannot create a thread");
    (void)pthread_join(thread, NULL);
    return errand.status == VMM_OK ? VMM_OK : vmm__error(errand.status, "%s", errand.line);
}

/* The program does not wait for the reader. */
static vmm_status reader_begin(struct stage *stage)
{
    const struct policy_place *place = &stage->held[0];
    vmm_stream stream = stage->streams[STREAM_READER];
    vmm_status status = VMM_OK;
    if (stage->row->is_declared)
        status = stage->row->ops->record(stage->policy, *place, STREAM_READER);
    if (status == VMM_OK)
        status = vmm__driver_delay(stage->driver, stage->read_ns, stream);
    return status == VMM_OK
               ? vmm__driver_check(stage->driver, place->address, stage->bytes, OWNER_WORD, stream)
               : status;
}

static vmm_status way_take(struct stage *stage, enum unrecorded_way way)
{
    switch (way) {
    case UNRECORDED_REQUEST:
        return other_ask(stage);
    case UNRECORDED_THREAD:
        return thread_ask(stage);
    case UNRECORDED_TRIM:
        return stage->row->ops->trim(stage->policy);
    }
    return VMM_OK;
}

/* The next round begins without memory: else the other stream would get what it has freed itself. */
static vmm_status round_end(struct stage *stage)
{
    vmm_status status = VMM_OK;
    while (stage->held_count > 0) {
        vmm_status freed = block_free(stage);
        status = status == VMM_OK ? freed : status;
    }
    if (status == VMM_OK && stage->row->ops->trim != NULL)
        status = stage->row->ops->trim(stage->policy);
    return status;
}

static vmm_status round_take(struct stage *stage, enum unrecorded_way way, bool *is_wrong)
{
    uint64_t faults = stage->faults;
    vmm_status status = block_make(stage, STREAM_OWNER, OWNER_WORD);
    if (status == VMM_OK)
        status = vmm__driver_device_wait(stage->driver);
    if (status == VMM_OK)
        status = reader_begin(stage);
    if (status == VMM_OK)
        status = block_free(stage);
    if (status == VMM_OK)
        status = way_take(stage, way);
    if (status == VMM_OK)
        status = faults_count(stage, &faults);
    if (status == VMM_OK)
        status = round_end(stage);
    *is_wrong = faults > stage->faults;
    stage->faults = faults;
    return status;
}

/* ---- A row ------------------------------------------------------------------------------------- */

/* Memory that is unmapped while it is read stops a real device for good. */
static bool case_is_run(const struct stage *stage, enum unrecorded_way way)
{
    const struct unrecorded_row *row = stage->row;
    if (way != UNRECORDED_TRIM)
        return true;
    return row->ops->trim != NULL && (row->is_promised || replay_is_sim(stage->driver));
}

/* A request that got no memory ends the case. */
static vmm_status case_run(struct stage *stage, const struct unrecorded_case *what, int *wrong)
{
    vmm_status status = VMM_OK;
    stage->bytes = what->bytes;
    for (unsigned n = 0; n < UNRECORDED_ROUNDS && status == VMM_OK; n++) {
        bool is_wrong = false;
        status = round_take(stage, what->way, &is_wrong);
        *wrong += is_wrong;
    }
    if (status != VMM_ERR_DEVICE_OOM)
        return status;
    *wrong = UNRECORDED_MEMORY;
    status = faults_count(stage, &stage->faults);
    return status == VMM_OK ? round_end(stage) : status;
}

static vmm_status cases_run(struct stage *stage, const struct unrecorded *unrecorded,
                            struct unrecorded_row *row)
{
    vmm_status status = faults_count(stage, &stage->faults);
    for (unsigned i = 0; i < UNRECORDED_CASES && status == VMM_OK; i++) {
        row->wrong[i] = UNRECORDED_NONE;
        if (case_is_run(stage, unrecorded->cases[i].way)) {
            row->wrong[i] = 0;
            status = case_run(stage, &unrecorded->cases[i], &row->wrong[i]);
        }
        progress_step(unrecorded->run.progress, i + 1);
    }
    return status;
}

static vmm_status policy_run(struct stage *stage, const struct unrecorded *unrecorded,
                             struct unrecorded_row *row)
{
    const struct policy_setup setup = { .driver = stage->driver,
                                        .limit_bytes = unrecorded->run.limit_bytes,
                                        .streams = stage->streams,
                                        .stream_count = STREAMS,
                                        .settings = unrecorded->run.options->settings };
    struct error_line line;
    vmm_status status = row->ops->open(row->ops, &setup, &stage->policy);
    if (status != VMM_OK)
        return status;
    status = cases_run(stage, unrecorded, row);
    vmm__error_save(&line);
    (void)round_end(stage); /* after a failure */
    vmm_status closed = row->ops->close(stage->policy);
    if (status == VMM_OK)
        return closed;
    vmm__error_restore(&line);
    return status;
}

static vmm_status row_run(const struct unrecorded *unrecorded, struct unrecorded_row *row)
{
    struct driver *driver = unrecorded->run.driver;
    struct progress *progress = unrecorded->run.progress;
    struct stage stage = { .driver = driver,
                           .row = row,
                           .read_ns = driver_is_host(driver) ? 50 * MS : 100 * MS };
    unsigned count = 0;
    vmm_status status = VMM_OK;
    while (count < STREAMS && status == VMM_OK) {
        status = vmm__driver_stream_create(driver, &stage.streams[count]);
        count += status == VMM_OK;
    }
    progress_begin(progress, UNRECORDED_CASES, "an undeclared use, %s", row->ops->name);
    if (status == VMM_OK)
        status = policy_run(&stage, unrecorded, row);
    progress_end(progress);
    while (count > 0)
        (void)vmm__driver_stream_destroy(driver, stage.streams[--count]);
    return status;
}

/* ---- All rows ---------------------------------------------------------------------------------- */

static void cases_fill(struct unrecorded *unrecorded, const uint64_t *sizes)
{
    for (unsigned i = 0; i < SIZES; i++)
        unrecorded->cases[i] = (struct unrecorded_case){ UNRECORDED_REQUEST, sizes[i] };
    unrecorded->cases[SIZES] = (struct unrecorded_case){ UNRECORDED_THREAD, sizes[SPECIAL_SIZE] };
    unrecorded->cases[SIZES + 1] = (struct unrecorded_case){ UNRECORDED_TRIM, sizes[SPECIAL_SIZE] };
}

static void row_add(struct unrecorded *unrecorded, const struct policy_ops *ops, bool is_declared,
                    bool is_promised)
{
    unrecorded->rows[unrecorded->row_count++] = (struct unrecorded_row){
        .ops = ops, .is_declared = is_declared, .is_promised = is_promised
    };
}

/* PyTorch's policies give a stream's memory to no other stream, and wait for the device before they give it back. */
static void rows_fill(struct unrecorded *unrecorded)
{
    const bool *policies = unrecorded->run.options->policies;
    bool any_use = unrecorded->run.options->settings.reuse == VMM_REUSE_ANY_USE;
    bool all = true;
    for (unsigned i = 0; i < POLICY_COUNT; i++) {
        bool is_vmmcache = policy_at(i) == &policy_vmmcache;
        all = all && policies[i];
        if (policies[i])
            row_add(unrecorded, policy_at(i), false, any_use || !is_vmmcache);
        if (policies[i] && is_vmmcache && !any_use)
            row_add(unrecorded, policy_at(i), true, true);
    }
    if (all && strcmp(unrecorded->driver, "cuda") == 0)
        row_add(unrecorded, &policy_malloc_async, false, false);
}

vmm_status unrecorded_run(struct scene_run *run)
{
    struct unrecorded *unrecorded = (struct unrecorded *)run;
    vmm_status status = VMM_OK;
    const uint64_t *sizes = driver_is_host(run->driver) ? host_sizes : device_sizes;
    unrecorded->driver = run->driver->ops->name;
    run->limit_bytes = policy_limit(run->options->memory, REQUESTS * sizes[SIZES - 1]);
    cases_fill(unrecorded, sizes);
    rows_fill(unrecorded);
    for (unsigned i = 0; i < unrecorded->row_count && status == VMM_OK; i++)
        status = row_run(unrecorded, &unrecorded->rows[i]);
    bool is_async = unrecorded->rows[unrecorded->row_count - 1].ops == &policy_malloc_async;
    if (status == VMM_ERR_UNSUPPORTED && is_async) {
        unrecorded->row_count--;
        status = VMM_OK;
    }
    run->is_good = unrecorded_is_good(unrecorded);
    return status;
}

unsigned unrecorded_wrong(const struct unrecorded_row *row)
{
    unsigned wrong = 0;
    for (unsigned i = 0; i < UNRECORDED_CASES; i++)
        wrong += row->wrong[i] > 0 ? (unsigned)row->wrong[i] : 0;
    return wrong;
}

bool unrecorded_is_right(const struct unrecorded_row *row)
{
    for (unsigned i = 0; i < UNRECORDED_CASES; i++)
        if (row->wrong[i] > 0 || row->wrong[i] == UNRECORDED_MEMORY)
            return false;
    return true;
}

bool unrecorded_is_good(const struct unrecorded *unrecorded)
{
    bool is_wrong[2] = { false }; /* of other policies, of vmmcache */
    bool has_vmmcache = false;
    for (unsigned i = 0; i < unrecorded->row_count; i++) {
        const struct unrecorded_row *row = &unrecorded->rows[i];
        bool is_vmmcache = row->ops == &policy_vmmcache;
        has_vmmcache |= is_vmmcache;
        is_wrong[is_vmmcache] |= row->is_promised && !unrecorded_is_right(row);
    }
    return !is_wrong[has_vmmcache];
}
