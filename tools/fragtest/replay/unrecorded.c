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
struct scene {
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

static const uint64_t *sizes_of(const struct driver *driver)
{
    return driver_is_host(driver) ? host_sizes : device_sizes;
}

uint64_t unrecorded_peak(const struct driver *driver)
{
    return REQUESTS * sizes_of(driver)[SIZES - 1];
}

/* ---- A round ----------------------------------------------------------------------------------- */

/* Waits for the device. On sim, races and accesses to unmapped memory stand for wrong bytes. */
static vmm_status faults_count(struct scene *scene, uint64_t *faults)
{
    vmm_status status = vmm__driver_mismatches(scene->driver, faults);
    if (status == VMM_OK && replay_is_sim(scene->driver))
        *faults += vmm__soft_violations(scene->driver, NULL);
    return status;
}

/* Allocates a block and fills it with the stream's pattern. */
static vmm_status block_make(struct scene *scene, uint32_t stream, uint32_t word)
{
    struct policy_place *place = &scene->held[scene->held_count];
    vmm_status status = scene->row->ops->alloc(scene->policy, scene->bytes, stream, place);
    if (status != VMM_OK)
        return status;
    scene->held_count++;
    return vmm__driver_fill(scene->driver, place->address, scene->bytes, word,
                            scene->streams[stream]);
}

static vmm_status block_free(struct scene *scene)
{
    return scene->row->ops->free(scene->policy, scene->held[--scene->held_count]);
}

/* The other stream uses what it gets, and asks again: at first the policy may not know that the owner's work ended. */
static vmm_status other_ask(struct scene *scene)
{
    const struct timespec pause = { .tv_nsec = MS };
    vmm_status status = VMM_OK;
    for (unsigned i = 0; i < REQUESTS && status == VMM_OK; i++) {
        status = block_make(scene, STREAM_OTHER, OTHER_WORD);
        if (status == VMM_OK)
            status = vmm__driver_check(scene->driver, scene->held[i].address, scene->bytes,
                                       OTHER_WORD, scene->streams[STREAM_OTHER]);
        (void)nanosleep(&pause, NULL);
    }
    return status;
}

/* What another thread does, and what came of it: the last error belongs to the thread. */
struct errand {
    struct scene *scene;
    vmm_status status;
    char line[256];
};

static void *errand_main(void *argument)
{
    struct errand *errand = argument;
    errand->status = other_ask(errand->scene);
    if (errand->status != VMM_OK)
        (void)snprintf(errand->line, sizeof(errand->line), "%s", vmm_last_error());
    return NULL;
}

static vmm_status thread_ask(struct scene *scene)
{
    struct errand errand = { .scene = scene };
    pthread_t thread;
    if (pthread_create(&thread, NULL, errand_main, &errand) != 0)
        return vmm__error(VMM_ERR_HOST_OOM, "cannot create a thread");
    (void)pthread_join(thread, NULL);
    return errand.status == VMM_OK ? VMM_OK : vmm__error(errand.status, "%s", errand.line);
}

/* The program does not wait for the reader. */
static vmm_status reader_begin(struct scene *scene)
{
    const struct policy_place *place = &scene->held[0];
    vmm_stream stream = scene->streams[STREAM_READER];
    vmm_status status = VMM_OK;
    if (scene->row->is_declared)
        status = scene->row->ops->record(scene->policy, *place, STREAM_READER);
    if (status == VMM_OK)
        status = vmm__driver_delay(scene->driver, scene->read_ns, stream);
    return status == VMM_OK
               ? vmm__driver_check(scene->driver, place->address, scene->bytes, OWNER_WORD, stream)
               : status;
}

static vmm_status way_take(struct scene *scene, enum unrecorded_way way)
{
    switch (way) {
    case UNRECORDED_REQUEST:
        return other_ask(scene);
    case UNRECORDED_THREAD:
        return thread_ask(scene);
    case UNRECORDED_TRIM:
        return scene->row->ops->trim(scene->policy);
    }
    return VMM_OK;
}

/* The next round begins without memory: else the other stream would get what it has freed itself. */
static vmm_status round_end(struct scene *scene)
{
    vmm_status status = VMM_OK;
    while (scene->held_count > 0) {
        vmm_status freed = block_free(scene);
        status = status == VMM_OK ? freed : status;
    }
    if (status == VMM_OK && scene->row->ops->trim != NULL)
        status = scene->row->ops->trim(scene->policy);
    return status;
}

static vmm_status round_take(struct scene *scene, enum unrecorded_way way, bool *is_wrong)
{
    uint64_t faults = scene->faults;
    vmm_status status = block_make(scene, STREAM_OWNER, OWNER_WORD);
    if (status == VMM_OK)
        status = vmm__driver_device_wait(scene->driver);
    if (status == VMM_OK)
        status = reader_begin(scene);
    if (status == VMM_OK)
        status = block_free(scene);
    if (status == VMM_OK)
        status = way_take(scene, way);
    if (status == VMM_OK)
        status = faults_count(scene, &faults);
    if (status == VMM_OK)
        status = round_end(scene);
    *is_wrong = faults > scene->faults;
    scene->faults = faults;
    return status;
}

/* ---- A row ------------------------------------------------------------------------------------- */

/* Memory that is unmapped while it is read stops a real device for good. */
static bool case_is_run(const struct scene *scene, enum unrecorded_way way)
{
    const struct unrecorded_row *row = scene->row;
    if (way != UNRECORDED_TRIM)
        return true;
    return row->ops->trim != NULL && (row->is_promised || replay_is_sim(scene->driver));
}

/* A request that got no memory ends the case. */
static vmm_status case_run(struct scene *scene, const struct unrecorded_case *what, int *wrong)
{
    vmm_status status = VMM_OK;
    scene->bytes = what->bytes;
    for (unsigned n = 0; n < UNRECORDED_ROUNDS && status == VMM_OK; n++) {
        bool is_wrong = false;
        status = round_take(scene, what->way, &is_wrong);
        *wrong += is_wrong;
    }
    if (status != VMM_ERR_DEVICE_OOM)
        return status;
    *wrong = UNRECORDED_MEMORY;
    status = faults_count(scene, &scene->faults);
    return status == VMM_OK ? round_end(scene) : status;
}

static vmm_status cases_run(struct scene *scene, const struct unrecorded *unrecorded,
                            struct unrecorded_row *row, struct progress *progress)
{
    vmm_status status = faults_count(scene, &scene->faults);
    for (unsigned i = 0; i < UNRECORDED_CASES && status == VMM_OK; i++) {
        row->wrong[i] = UNRECORDED_NONE;
        if (case_is_run(scene, unrecorded->cases[i].way)) {
            row->wrong[i] = 0;
            status = case_run(scene, &unrecorded->cases[i], &row->wrong[i]);
        }
        progress_step(progress, i + 1);
    }
    return status;
}

static vmm_status policy_run(struct scene *scene, const struct unrecorded *unrecorded,
                             struct unrecorded_row *row, struct progress *progress)
{
    const struct policy_setup setup = { .driver = scene->driver,
                                        .limit_bytes = unrecorded->limit_bytes,
                                        .streams = scene->streams,
                                        .stream_count = STREAMS,
                                        .settings = unrecorded->settings };
    struct error_line line;
    vmm_status status = row->ops->open(&setup, &scene->policy);
    if (status != VMM_OK)
        return status;
    status = cases_run(scene, unrecorded, row, progress);
    vmm__error_save(&line);
    (void)round_end(scene); /* after a failure */
    vmm_status closed = row->ops->close(scene->policy);
    if (status == VMM_OK)
        return closed;
    vmm__error_restore(&line);
    return status;
}

static vmm_status row_run(struct driver *driver, const struct unrecorded *unrecorded,
                          struct unrecorded_row *row, struct progress *progress)
{
    struct scene scene = { .driver = driver,
                           .row = row,
                           .read_ns = driver_is_host(driver) ? 50 * MS : 100 * MS };
    unsigned count = 0;
    vmm_status status = VMM_OK;
    while (count < STREAMS && status == VMM_OK) {
        status = vmm__driver_stream_create(driver, &scene.streams[count]);
        count += status == VMM_OK;
    }
    progress_begin(progress, UNRECORDED_CASES, "an undeclared use, %s", row->ops->name);
    if (status == VMM_OK)
        status = policy_run(&scene, unrecorded, row, progress);
    progress_end(progress);
    while (count > 0)
        (void)vmm__driver_stream_destroy(driver, scene.streams[--count]);
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
static void rows_fill(struct unrecorded *unrecorded, const struct driver *driver,
                      const bool *policies)
{
    bool any_use = unrecorded->settings.reuse == VMM_REUSE_ANY_USE;
    bool all = true;
    for (unsigned i = 0; i < POLICY_COUNT; i++) {
        bool is_vmmcache = policy_at(i) == policy_vmmcache();
        all = all && policies[i];
        if (policies[i])
            row_add(unrecorded, policy_at(i), false, any_use || !is_vmmcache);
        if (policies[i] && is_vmmcache && !any_use)
            row_add(unrecorded, policy_at(i), true, true);
    }
    if (all && strcmp(driver->ops->name, "cuda") == 0)
        row_add(unrecorded, policy_malloc_async(), false, false);
}

vmm_status unrecorded_run(struct driver *driver, const bool *policies,
                          struct unrecorded *unrecorded, struct progress *progress)
{
    vmm_status status = VMM_OK;
    cases_fill(unrecorded, sizes_of(driver));
    rows_fill(unrecorded, driver, policies);
    for (unsigned i = 0; i < unrecorded->row_count && status == VMM_OK; i++)
        status = row_run(driver, unrecorded, &unrecorded->rows[i], progress);
    bool is_async = unrecorded->rows[unrecorded->row_count - 1].ops == policy_malloc_async();
    if (status != VMM_ERR_UNSUPPORTED || !is_async)
        return status;
    unrecorded->row_count--;
    return VMM_OK;
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

int unrecorded_exit(const struct unrecorded *unrecorded)
{
    bool is_wrong[2] = { false }; /* of other policies, of vmmcache */
    bool has_vmmcache = false;
    for (unsigned i = 0; i < unrecorded->row_count; i++) {
        const struct unrecorded_row *row = &unrecorded->rows[i];
        bool is_vmmcache = row->ops == policy_vmmcache();
        has_vmmcache |= is_vmmcache;
        is_wrong[is_vmmcache] |= row->is_promised && !unrecorded_is_right(row);
    }
    return is_wrong[has_vmmcache] ? 1 : 0;
}
