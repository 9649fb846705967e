/* The cache that workers share and their threads: see workers.h. */
#define _GNU_SOURCE
#include "workers.h"

#include "base/time.h"
#include "driver/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 20,
    PATIENCE_SECONDS = 30,
    EXIT_TROUBLE = 1,
    DECAY_MS = 20,
    LAG_MOST = 4000,
    DIE_EVERY = 20000, /* operations */
    LARGEST_CLASS = 10 /* of sizes: up to 16 MiB */
};

#define NANOSECONDS UINT64_C(1000000000)

/* ---- Trouble --------------------------------------------------------------------------------- */

bool workers_are_troubled(struct workers *workers)
{
    (void)pthread_mutex_lock(&workers->shared.trouble_mutex);
    bool is_troubled = workers->shared.trouble[0] != '\0';
    (void)pthread_mutex_unlock(&workers->shared.trouble_mutex);
    return is_troubled;
}

void workers_trouble(struct workers *workers, const char *format, ...)
{
    struct stress_shared *shared = &workers->shared;
    va_list arguments;
    va_start(arguments, format);
    (void)pthread_mutex_lock(&shared->trouble_mutex);
    if (shared->trouble[0] == '\0')
        (void)vsnprintf(shared->trouble, sizeof shared->trouble, format, arguments);
    (void)pthread_mutex_unlock(&shared->trouble_mutex);
    va_end(arguments);
    atomic_store(&shared->goes_on, false);
}

void workers_expect(struct workers *workers, const char *call, vmm_status status)
{
    if (status != VMM_OK)
        workers_trouble(workers, "%s: %s: %s", call, vmm_status_name(status), vmm_last_error());
}

/* ---- Open, close ----------------------------------------------------------------------------- */

static vmm_config config_of(const struct settings *settings)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = settings->limit_bytes;
    config.reuse = settings->reuse;
    config.clock_kind = settings->clock_kind;
    config.decay_ms = DECAY_MS;
    config.decay_keep_bytes = settings->limit_bytes / 2;
    config.decay_thread = 1;
    return config;
}

static void stream_make(struct workers *workers, vmm_stream *out)
{
    workers_expect(workers, "stream create",
                   vmm__driver_stream_create(workers->shared.driver, out));
}

/* Its last stream is its own, on which it captures graphs; then come its strangers. */
static void worker_open(struct workers *workers, unsigned number)
{
    const struct stress_shared *shared = &workers->shared;
    struct worker *worker = &workers->each[number];
    struct stress *stress = &worker->stress;
    stress_begin(stress);
    worker->workers = workers;
    worker->mixture = mixture_make(workers->settings.seed * WORKERS_MOST + number, PROFILE_WORKER);
    worker->mixture.largest = LARGEST_CLASS;
    worker->mixture.slots = 80;
    stress->kind = workers->settings.kind;
    stress->driver = shared->driver;
    stress->cache = shared->cache;
    stress->config = config_of(&workers->settings);
    stress->shared = &workers->shared;
    stress->worker = number;
    stress->device_bytes = shared->driver->total_bytes;
    stress->live_most = shared->share_bytes;
    stress->stream_count = shared->stream_count + 1;
    for (unsigned i = 0; i < shared->stream_count; i++)
        stress->streams[i] = shared->streams[i];
    for (unsigned i = shared->stream_count; i < stress_streams(stress); i++)
        stream_make(workers, &stress->streams[i]);
    workers_expect(workers, "event create",
                   vmm__driver_event_create(shared->driver, &stress->event));
    stress_state_begin(stress);
    atomic_store(&stress->doing, "nothing");
}

vmm_status workers_open(struct workers *workers, const struct settings *settings)
{
    struct driver_options options = { .device_bytes = 2 * settings->limit_bytes };
    struct stress_shared *shared = &workers->shared;
    vmm_config config = config_of(settings);
    workers->settings = *settings;
    shared->limit_bytes = settings->limit_bytes;
    shared->share_bytes = settings->limit_bytes / 16 * 15 / settings->threads;
    shared->stream_count = settings->streams;
    (void)pthread_mutex_init(&shared->trouble_mutex, NULL);
    for (unsigned i = 0; i < STRESS_PLACES; i++)
        (void)pthread_mutex_init(&shared->places[i].mutex, NULL);
    vmm_status status = vmm__driver_open(settings->kind, &options, &shared->driver);
    if (status != VMM_OK)
        return status;
    for (unsigned i = 0; i < settings->streams; i++)
        stream_make(workers, &shared->streams[i]);
    /* On cuda the first work loads the kernels, which must not fall into a capture. */
    workers_expect(workers, "delay", vmm__driver_delay(shared->driver, 1, shared->streams[0]));
    status = vmm__cache_create_on(&config, shared->driver, &shared->cache);
    workers_expect(workers, "create", status);
    for (unsigned i = 0; i < settings->threads; i++)
        worker_open(workers, i);
    return status;
}

static void emptiness_verify(struct workers *workers)
{
    const struct driver *driver = workers->shared.driver;
    if (driver->reservations != 0 || driver->handles != 0 || driver->mapped_bytes != 0 ||
        driver->events != 0)
        workers_trouble(
            workers,
            "after the end: %llu reservations, %llu handles, %llu bytes mapped, %llu "
            "events",
            (unsigned long long)driver->reservations, (unsigned long long)driver->handles,
            (unsigned long long)driver->mapped_bytes, (unsigned long long)driver->events);
}

/* Those that are a worker's own. */
static void streams_end(struct workers *workers, const struct stress *stress)
{
    for (unsigned i = workers->shared.stream_count; i < stress_streams(stress); i++) {
        if ((stress->gone >> i & 1) == 0)
            workers_expect(workers, "stream destroy",
                           vmm__driver_stream_destroy(workers->shared.driver, stress->streams[i]));
    }
}

void workers_close(struct workers *workers)
{
    struct stress_shared *shared = &workers->shared;
    workers_expect(workers, "vmm_destroy", vmm_destroy(shared->cache));
    for (unsigned i = 0; i < workers->settings.threads; i++) {
        struct stress *stress = &workers->each[i].stress;
        workers_expect(workers, "event destroy",
                       vmm__driver_event_destroy(shared->driver, stress->event));
        streams_end(workers, stress);
    }
    for (unsigned i = 0; i < shared->stream_count; i++)
        workers_expect(workers, "stream destroy",
                       vmm__driver_stream_destroy(shared->driver, shared->streams[i]));
    emptiness_verify(workers);
    vmm__driver_close(shared->driver);
    for (unsigned i = 0; i < STRESS_PLACES; i++)
        (void)pthread_mutex_destroy(&shared->places[i].mutex);
}

/* ---- Figures --------------------------------------------------------------------------------- */

struct stress_sums workers_sums(const struct workers *workers, uint64_t *deaths)
{
    struct stress_sums sums = { 0 };
    *deaths = 0;
    for (unsigned i = 0; i < workers->settings.threads; i++) {
        const struct stress_sums *of = &workers->each[i].stress.sums;
        sums.operations += of->operations;
        sums.allocations += of->allocations;
        sums.refused += of->refused;
        sums.shares += of->shares;
        sums.undeclared += of->undeclared;
        sums.passes += of->passes;
        sums.launches += of->launches;
        *deaths += workers->each[i].deaths;
    }
    return sums;
}

vmm_stats workers_stats(struct workers *workers)
{
    vmm_stats stats = VMM_STATS_INIT;
    workers_expect(workers, "vmm_stats_get", vmm_stats_get(workers->shared.cache, &stats));
    return stats;
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Leaves what it may to others. */
static void blocks_leave(struct worker *worker)
{
    for (unsigned slot = 0; slot < worker->mixture.slots; slot++) {
        struct operation pass = { .code = OPERATION_pass, .a = (uint8_t)slot };
        pass.b = (uint8_t)random_next(&worker->mixture.random);
        if (worker->stress.model.blocks[slot].is_live)
            stress_operation(&worker->stress, &pass);
    }
}

/* Ends with the round, or before it. Its blocks stay behind, in the exchange or with the worker. */
void *worker_main(void *context)
{
    struct worker *worker = context;
    struct stress *stress = &worker->stress;
    while (workers_go_on(worker) && !stress_is_troubled(stress)) {
        struct operation operation = operation_draw(&worker->mixture);
        stress_operation(stress, &operation);
        atomic_fetch_add_explicit(&worker->done, 1, memory_order_relaxed);
        if (random_next(&worker->mixture.random) % DIE_EVERY != 0)
            continue;
        blocks_leave(worker);
        worker->deaths++;
        break;
    }
    stress_captures_end(stress); /* CUDA ends a capture on the thread that began it only */
    if (stress_is_troubled(stress))
        workers_trouble(worker->workers, "worker %u: %s", stress->worker, stress->trouble);
    atomic_store(&stress->doing, "nothing");
    atomic_store_explicit(&worker->has_ended, true, memory_order_release);
    return NULL;
}

static void worker_start(struct worker *worker, void *(*body)(void *worker))
{
    atomic_store(&worker->has_ended, false);
    int code = pthread_create(&worker->thread, NULL, body, worker);
    worker->is_running = code == 0;
    if (code != 0)
        workers_trouble(worker->workers, "pthread_create of worker %u: %d", worker->stress.worker,
                        code);
}

static void worker_join(struct worker *worker)
{
    if (worker->is_running)
        (void)pthread_join(worker->thread, NULL);
    worker->is_running = false;
}

/* What each worker had done when it last was seen to have made progress, and when that was. */
struct watchdog {
    uint64_t done[WORKERS_MOST];
    uint64_t since_ns[WORKERS_MOST];
};

/* It may hold a lock that everybody else needs: nothing can be cleared up. */
static void stuck_report(const struct worker *worker)
{
    (void)fflush(stdout);
    (void)fprintf(
        stderr,
        "stress_workers: thread %u has made no progress for %d seconds, in the middle of: "
        "%s, after %llu operations\n",
        worker->stress.worker, PATIENCE_SECONDS, atomic_load(&worker->stress.doing),
        (unsigned long long)atomic_load(&worker->done));
    _exit(EXIT_TROUBLE);
}

/* Returns the operations of all workers so far. */
static uint64_t progress_watch(struct workers *workers, struct watchdog *watchdog)
{
    uint64_t now = vmm__time_ns();
    uint64_t operations = 0;
    for (unsigned i = 0; i < workers->settings.threads; i++) {
        struct worker *worker = &workers->each[i];
        uint64_t done = atomic_load_explicit(&worker->done, memory_order_relaxed);
        operations += done;
        bool moves = done != watchdog->done[i] || atomic_load(&worker->has_ended) ||
                     watchdog->since_ns[i] == 0;
        if (moves)
            watchdog->since_ns[i] = now;
        else if (now - watchdog->since_ns[i] > PATIENCE_SECONDS * NANOSECONDS)
            stuck_report(worker);
        watchdog->done[i] = done;
    }
    return operations;
}

static void pause_briefly(void)
{
    const struct timespec pause = { .tv_nsec = LOOK_MS * 1000000L };
    (void)nanosleep(&pause, NULL);
}

/* One that died gets a successor, which goes on with what was left. Returns whether all have ended. */
static bool dead_replace(struct workers *workers, void *(*body)(void *worker))
{
    bool all = true;
    for (unsigned i = 0; i < workers->settings.threads; i++) {
        struct worker *worker = &workers->each[i];
        bool has_ended =
            !worker->is_running || atomic_load_explicit(&worker->has_ended, memory_order_acquire);
        all = all && has_ended;
        if (has_ended && atomic_load(&workers->shared.goes_on)) {
            worker_join(worker);
            worker_start(worker, body);
        }
    }
    return all;
}

/* On sim: how far work lags behind. */
static void lag_draw(struct workers *workers, uint64_t *random)
{
    if (workers->settings.kind == VMM_DRIVER_SIM)
        vmm__sim_lag_set(workers->shared.driver, random_next(random) % LAG_MOST);
}

void workers_round(struct workers *workers, void *(*body)(void *worker),
                   bool (*enough)(void *context, uint64_t operations), void *context)
{
    struct watchdog watchdog = { { 0 }, { 0 } };
    struct stress_shared *shared = &workers->shared;
    uint64_t random = progress_watch(workers, &watchdog);
    bool all_have_ended = false;
    atomic_store(&shared->goes_on, !workers_are_troubled(workers));
    while (!all_have_ended || atomic_load(&shared->goes_on)) {
        all_have_ended = dead_replace(workers, body);
        pause_briefly();
        lag_draw(workers, &random);
        if (enough(context, progress_watch(workers, &watchdog)))
            atomic_store(&shared->goes_on, false);
    }
    for (unsigned i = 0; i < workers->settings.threads; i++)
        worker_join(&workers->each[i]);
}

/* ---- Rest ------------------------------------------------------------------------------------ */

/* The first worker takes what is left in the exchange. */
static void places_empty(struct workers *workers)
{
    for (unsigned i = 0; i < STRESS_PLACES; i++) {
        struct operation pass = { .code = OPERATION_pass, .b = (uint8_t)i };
        stress_operation(&workers->each[0].stress, &pass);
        stress_give_all(&workers->each[0].stress);
    }
}

static void work_verify(struct workers *workers)
{
    struct driver *driver = workers->shared.driver;
    bool is_sim = workers->settings.kind == VMM_DRIVER_SIM;
    const char *text = "";
    uint64_t places = 0;
    workers_expect(workers, "mismatches", vmm__driver_mismatches(driver, &places));
    if (places != 0)
        workers_trouble(workers, "%llu places held something else than was written %s",
                        (unsigned long long)places, is_sim ? vmm__sim_mismatch(driver) : "");
    uint64_t violations = is_sim ? vmm__soft_violations(driver, &text) : 0;
    if (violations != 0)
        workers_trouble(workers, "%llu violations, first: %s", (unsigned long long)violations,
                        text);
}

static void memory_return(struct workers *workers)
{
    vmm_cache *cache = workers->shared.cache;
    workers_expect(workers, "vmm_wait", vmm_wait(cache));
    workers_expect(workers, "vmm_trim", vmm_trim(cache, 0, NULL));
    vmm_stats stats = workers_stats(workers);
    if (stats.active_bytes.current != 0 || stats.reserved_bytes.current != 0 ||
        stats.retained_bytes != 0 || stats.limbo_bytes != 0)
        workers_trouble(workers,
                        "%llu bytes active and %llu reserved after everything was given back",
                        (unsigned long long)stats.active_bytes.current,
                        (unsigned long long)stats.reserved_bytes.current);
}

void workers_rest(struct workers *workers)
{
    unsigned shared_end = workers->shared.stream_count;
    if (workers_are_troubled(workers))
        return; /* what is left then only shows the same trouble again */
    for (unsigned i = 0; i < workers->settings.threads; i++) {
        struct stress *stress = &workers->each[i].stress;
        stress_give_all(stress);
        for (unsigned stream = shared_end; stream < stress_streams(stress); stream++)
            stress_stream_renew(stress, stream);
        stress_state_begin(stress);
    }
    places_empty(workers);
    for (unsigned i = 0; i < workers->settings.threads; i++) {
        if (stress_is_troubled(&workers->each[i].stress))
            workers_trouble(workers, "worker %u: %s", i, workers->each[i].stress.trouble);
    }
    work_verify(workers);
    memory_return(workers);
    workers_expect(workers, "vmm__cache_check", vmm__cache_check(workers->shared.cache));
}
