/*
 * The crew of the soak of threads: its cache, its hands' threads, whether they make progress, and what must hold when
 * all have come to rest. See thread_soak.h.
 */
#define _GNU_SOURCE
#include "thread_soak.h"

#include "base/clock.h"
#include "driver/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 20, PATIENCE_SECONDS = 30, EXIT_TROUBLE = 1, DECAY_MS = 20, LAG_MOST = 4000 };

#define NANOSECONDS UINT64_C(1000000000)

/* ---- Trouble --------------------------------------------------------------------------------- */

bool crew_is_troubled(struct crew *crew)
{
    (void)pthread_mutex_lock(&crew->trouble_mutex);
    bool is_troubled = crew->trouble[0] != '\0';
    (void)pthread_mutex_unlock(&crew->trouble_mutex);
    return is_troubled;
}

void crew_trouble(struct crew *crew, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)pthread_mutex_lock(&crew->trouble_mutex);
    if (crew->trouble[0] == '\0')
        (void)vsnprintf(crew->trouble, sizeof crew->trouble, format, arguments);
    (void)pthread_mutex_unlock(&crew->trouble_mutex);
    va_end(arguments);
    atomic_store(&crew->goes_on, false);
}

void crew_expect(struct crew *crew, const char *call, vmm_status status)
{
    if (status != VMM_OK)
        crew_trouble(crew, "%s: %s: %s", call, vmm_status_name(status), vmm_last_error());
}

/* ---- Open, close ----------------------------------------------------------------------------- */

static void hand_open(struct crew *crew, unsigned number)
{
    struct hand *hand = &crew->hands[number];
    hand->crew = crew;
    hand->number = number;
    hand->random = crew->settings.seed * CREW_HANDS + number;
    atomic_init(&hand->doing, "nothing");
    crew_expect(crew, "event create", vmm__driver_event_create(crew->driver, &hand->event));
    crew_expect(crew, "stream create",
                vmm__driver_stream_create(crew->driver, &hand->graph_stream));
}

static vmm_config config_of(const struct crew_settings *settings)
{
    vmm_config config = VMM_CONFIG_INIT;
    config.limit_bytes = settings->limit_bytes;
    config.sharing = settings->sharing;
    config.decay_ms = DECAY_MS;
    config.decay_keep_bytes = settings->limit_bytes / 2;
    config.decay_thread = 1;
    return config;
}

vmm_status crew_open(struct crew *crew, const struct crew_settings *settings)
{
    struct driver_options options = { .device_bytes = 2 * settings->limit_bytes };
    vmm_config config = config_of(settings);
    crew->settings = *settings;
    (void)pthread_mutex_init(&crew->trouble_mutex, NULL);
    for (unsigned i = 0; i < CREW_PLACES; i++)
        (void)pthread_mutex_init(&crew->places[i].mutex, NULL);
    vmm_status status = vmm__driver_open(settings->kind, &options, &crew->driver);
    if (status != VMM_OK)
        return status;
    for (unsigned i = 0; i < settings->streams; i++)
        crew_expect(crew, "stream create",
                    vmm__driver_stream_create(crew->driver, &crew->streams[i]));
    for (unsigned i = 0; i < settings->threads; i++)
        hand_open(crew, i);
    /* On cuda the first work loads the kernels, which must not fall into a capture. */
    crew_expect(crew, "delay", vmm__driver_delay(crew->driver, 1, crew->streams[0]));
    status = vmm__cache_create_on(&config, crew->driver, &crew->cache);
    crew_expect(crew, "create", status);
    return status;
}

static void census_is_zero(struct crew *crew)
{
    const struct driver *driver = crew->driver;
    if (driver->reservations != 0 || driver->handles != 0 || driver->mapped_bytes != 0 ||
        driver->events != 0)
        crew_trouble(crew,
                     "after the end: %llu reservations, %llu handles, %llu bytes mapped, %llu "
                     "events",
                     (unsigned long long)driver->reservations, (unsigned long long)driver->handles,
                     (unsigned long long)driver->mapped_bytes, (unsigned long long)driver->events);
}

void crew_close(struct crew *crew)
{
    crew_expect(crew, "vmm_destroy", vmm_destroy(crew->cache));
    for (unsigned i = 0; i < crew->settings.threads; i++) {
        crew_expect(crew, "event destroy",
                    vmm__driver_event_destroy(crew->driver, crew->hands[i].event));
        crew_expect(crew, "stream destroy",
                    vmm__driver_stream_destroy(crew->driver, crew->hands[i].graph_stream));
    }
    for (unsigned i = 0; i < crew->settings.streams; i++)
        crew_expect(crew, "stream destroy",
                    vmm__driver_stream_destroy(crew->driver, crew->streams[i]));
    census_is_zero(crew);
    vmm__driver_close(crew->driver);
    for (unsigned i = 0; i < CREW_PLACES; i++)
        (void)pthread_mutex_destroy(&crew->places[i].mutex);
}

/* ---- Figures --------------------------------------------------------------------------------- */

struct hand_sums crew_sums(const struct crew *crew)
{
    struct hand_sums sums = { 0 };
    for (unsigned i = 0; i < crew->settings.threads; i++) {
        const struct hand_sums *of = &crew->hands[i].sums;
        sums.operations += of->operations;
        sums.allocations += of->allocations;
        sums.uses += of->uses;
        sums.passes += of->passes;
        sums.refusals += of->refusals;
        sums.captures += of->captures;
        sums.deaths += of->deaths;
    }
    return sums;
}

vmm_stats crew_stats(struct crew *crew)
{
    vmm_stats stats = VMM_STATS_INIT;
    crew_expect(crew, "vmm_stats_get", vmm_stats_get(crew->cache, &stats));
    return stats;
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void hand_start(struct crew *crew, struct hand *hand, void *(*body)(void *hand))
{
    atomic_store(&hand->has_ended, false);
    int code = pthread_create(&hand->thread, NULL, body, hand);
    hand->is_running = code == 0;
    if (code != 0)
        crew_trouble(crew, "pthread_create of hand %u: %d", hand->number, code);
}

static void hand_join(struct hand *hand)
{
    if (hand->is_running)
        (void)pthread_join(hand->thread, NULL);
    hand->is_running = false;
}

/* What each hand had done when it last was seen to have made progress, and when that was. */
struct watchdog {
    uint64_t done[CREW_HANDS];
    uint64_t since_ns[CREW_HANDS];
};

/* Whoever is stuck may hold a lock that everybody else needs: nothing can be cleared up. */
static void hand_is_stuck(const struct hand *hand)
{
    (void)fflush(stdout);
    (void)fprintf(stderr,
                  "thread_soak: thread %u has made no progress for %d seconds, in the middle of: "
                  "%s, after %llu operations\n",
                  hand->number, PATIENCE_SECONDS, atomic_load(&hand->doing),
                  (unsigned long long)atomic_load(&hand->done));
    _exit(EXIT_TROUBLE);
}

/* Returns the operations of all hands so far. */
static uint64_t progress_watched(struct crew *crew, struct watchdog *watchdog)
{
    uint64_t now = vmm__clock_ns();
    uint64_t operations = 0;
    for (unsigned i = 0; i < crew->settings.threads; i++) {
        struct hand *hand = &crew->hands[i];
        uint64_t done = atomic_load_explicit(&hand->done, memory_order_relaxed);
        operations += done;
        bool moves = done != watchdog->done[i] || atomic_load(&hand->has_ended) ||
                     watchdog->since_ns[i] == 0;
        if (moves)
            watchdog->since_ns[i] = now;
        else if (now - watchdog->since_ns[i] > PATIENCE_SECONDS * NANOSECONDS)
            hand_is_stuck(hand);
        watchdog->done[i] = done;
    }
    return operations;
}

static void pause_briefly(void)
{
    const struct timespec pause = { .tv_nsec = LOOK_MS * 1000000L };
    (void)nanosleep(&pause, NULL);
}

/* Whoever died gets a successor, which goes on with what was left. */
static void dead_replaced(struct crew *crew, void *(*body)(void *hand))
{
    for (unsigned i = 0; i < crew->settings.threads; i++) {
        struct hand *hand = &crew->hands[i];
        if (!atomic_load_explicit(&hand->has_ended, memory_order_acquire))
            continue;
        hand_join(hand);
        if (atomic_load(&crew->goes_on))
            hand_start(crew, hand, body);
    }
}

static bool all_have_ended(const struct crew *crew)
{
    for (unsigned i = 0; i < crew->settings.threads; i++) {
        const struct hand *hand = &crew->hands[i];
        if (hand->is_running && !atomic_load_explicit(&hand->has_ended, memory_order_acquire))
            return false;
    }
    return true;
}

/* On sim: how far work lags behind. */
static void lag_drawn(struct crew *crew, uint64_t *random)
{
    if (crew->settings.kind == VMM_DRIVER_SIM)
        vmm__sim_lag_set(crew->driver, random_next(random) % LAG_MOST);
}

void crew_round(struct crew *crew, void *(*body)(void *hand),
                bool (*enough)(void *context, uint64_t operations), void *context)
{
    struct watchdog watchdog = { { 0 }, { 0 } };
    uint64_t random = crew_sums(crew).operations;
    atomic_store(&crew->goes_on, !crew_is_troubled(crew));
    for (unsigned i = 0; i < crew->settings.threads && atomic_load(&crew->goes_on); i++)
        hand_start(crew, &crew->hands[i], body);
    while (atomic_load(&crew->goes_on)) {
        pause_briefly();
        lag_drawn(crew, &random);
        if (enough(context, progress_watched(crew, &watchdog)))
            atomic_store(&crew->goes_on, false);
        else
            dead_replaced(crew, body);
    }
    while (!all_have_ended(crew)) {
        pause_briefly();
        (void)progress_watched(crew, &watchdog);
    }
    for (unsigned i = 0; i < crew->settings.threads; i++)
        hand_join(&crew->hands[i]);
}

/* ---- Rest ------------------------------------------------------------------------------------ */

/* By the last who is there, on behalf of the hand, or of the first one for what is left in the exchange. */
static void blocks_given(struct crew *crew)
{
    for (unsigned i = 0; i < crew->settings.threads; i++) {
        struct hand *hand = &crew->hands[i];
        for (unsigned j = 0; j < HAND_BLOCKS; j++) {
            if (hand->blocks[j].address != NULL)
                hand_block_give(hand, &hand->blocks[j]);
        }
    }
    for (unsigned i = 0; i < CREW_PLACES; i++) {
        if (crew->places[i].block.address != NULL)
            hand_block_give(&crew->hands[0], &crew->places[i].block);
    }
    for (unsigned i = 0; i < crew->settings.threads; i++)
        crew->hands[i].live_bytes = 0;
}

static void work_is_sound(struct crew *crew)
{
    const char *story = "";
    uint64_t places = 0;
    crew_expect(crew, "mismatches", vmm__driver_mismatches(crew->driver, &places));
    if (crew->settings.kind == VMM_DRIVER_SIM && places != 0)
        story = vmm__sim_mismatch(crew->driver);
    if (places != 0)
        crew_trouble(crew, "%llu places held something else than was written %s",
                     (unsigned long long)places, story);
    if (crew->settings.kind != VMM_DRIVER_SIM)
        return;
    uint64_t violations = vmm__sim_violations(crew->driver, &story);
    if (violations != 0)
        crew_trouble(crew, "%llu violations, first: %s", (unsigned long long)violations, story);
}

static void memory_is_returned(struct crew *crew)
{
    crew_expect(crew, "vmm_wait", vmm_wait(crew->cache));
    crew_expect(crew, "vmm_trim", vmm_trim(crew->cache, 0, NULL));
    vmm_stats stats = crew_stats(crew);
    if (stats.active_bytes.current != 0 || stats.reserved_bytes.current != 0 ||
        stats.kept_bytes != 0 || stats.limbo_bytes != 0)
        crew_trouble(crew, "%llu bytes active and %llu reserved after everything was given back",
                     (unsigned long long)stats.active_bytes.current,
                     (unsigned long long)stats.reserved_bytes.current);
}

void crew_rest(struct crew *crew)
{
    if (crew_is_troubled(crew))
        return; /* what is left then only shows the same trouble again */
    blocks_given(crew);
    work_is_sound(crew);
    memory_is_returned(crew);
    crew_expect(crew, "vmm__cache_check", vmm__cache_check(crew->cache));
}
