/*
 * The clock of a cache on a sim driver whose work ends only when the host waits, with a list of streams that the cache
 * knows: 1 and 2.
 *
 * Use CLOCK_TEST(name), in which `scene` is that. scene->clock covers all work; own_open() opens one of a lane. The
 * teardown checks that nothing is left.
 */
#ifndef VMM_CLOCK_SUPPORT_H
#define VMM_CLOCK_SUPPORT_H

#include "support/sim_support.h"

#include "vm/captures.h"
#include "vm/clock.h"

#define CLOCK_TEST(name) TEST_WITH(name, scene_setup, scene_teardown, struct scene *scene)

enum { KNOWN_MOST = 4, CLOCK_LINE_BYTES = 256, WORK_BYTES = 128 << 10 };

struct known {
    vmm_stream stream;
    _Atomic bool is_gone;
    bool is_live; /* it has live blocks */
};

struct scene {
    struct driver *driver;
    struct events events;
    struct clock clock;
    uint64_t address; /* of a granule for work */
    struct known known[KNOWN_MOST];
    unsigned known_count;
    unsigned lines; /* of the log */
    char line[CLOCK_LINE_BYTES];
    const struct driver_ops
        *ops; /* of the driver; scene->wrapped replaces them while it is in use */
    struct driver_ops wrapped;
};

static inline bool scene_known_next(struct scene *scene, void **cursor, struct known_stream *out,
                                    bool only_live)
{
    for (uintptr_t i = (uintptr_t)*cursor; i < scene->known_count; i++) {
        struct known *known = &scene->known[i];
        if (only_live && !known->is_live)
            continue;
        *cursor = (void *)(i + 1);
        *out = (struct known_stream){ .stream = known->stream, .is_gone = &known->is_gone };
        return true;
    }
    return false;
}

static inline bool scene_next(void *context, void **cursor, struct known_stream *out)
{
    return scene_known_next(context, cursor, out, false);
}

static inline bool scene_next_live(void *context, void **cursor, struct known_stream *out)
{
    return scene_known_next(context, cursor, out, true);
}

static inline void scene_tell(void *context, const char *line)
{
    struct scene *scene = context;
    scene->lines++;
    (void)snprintf(scene->line, sizeof scene->line, "%s", line);
}

static inline void scene_open(struct scene *scene, struct driver *driver, vmm_clock_kind kind)
{
    const struct clock_watch watch = {
        .next = scene_next, .next_live = scene_next_live, .tell = scene_tell, .context = scene
    };
    *scene = (struct scene){ .driver = driver, .ops = driver->ops, .known_count = 2 };
    scene->known[0].stream = STREAM(1);
    scene->known[1].stream = STREAM(2);
    scene->address = memory_map(driver, GRANULE, NULL);
    vmm__events_init(&scene->events, driver);
    vmm__clock_init(&scene->clock, driver, &scene->events, &watch, kind);
}

static inline int scene_setup(void **state)
{
    static struct scene scene;
    void *driver = NULL;
    assert_int_equal(sim_setup(&driver), 0);
    scene_open(&scene, driver, VMM_CLOCK_CONTEXT);
    vmm__sim_lag_set(driver, UINT64_C(1) << 40);
    *state = &scene;
    return 0;
}

/* Drops the announcements and the calls that a test replaced, and checks that nothing is left. */
static inline int scene_teardown(void **state)
{
    struct scene *scene = *state;
    void *driver = scene->driver;
    scene->driver->ops = scene->ops;
    (void)vmm__host_fail_at(0);
    vmm__sim_fail_at(scene->driver, 0, VMM_OK, false);
    vmm__captures_forget(scene->driver);
    assert_ok(vmm__clock_check(&scene->clock));
    assert_ok(vmm__clock_fini(&scene->clock));
    assert_ok(vmm__events_fini(&scene->events));
    assert_int_equal(scene->driver->events, 0);
    return sim_teardown(&driver);
}

/* The same scene with a clock of another kind. */
static inline void scene_rekind(struct scene *scene, vmm_clock_kind kind)
{
    void *state = scene;
    assert_int_equal(scene_teardown(&state), 0);
    assert_int_equal(scene_setup(&state), 0);
    scene->clock.kind = kind;
}

/* The memory that the work of a stream uses. */
static inline uint64_t work_address(const struct scene *scene, vmm_stream stream)
{
    return scene->address + (uint64_t)(uintptr_t)stream % 16 * WORK_BYTES;
}

/* Submits work of a stream, and returns the stamp of memory that is freed after it. */
static inline uint64_t work_start(struct scene *scene, vmm_stream stream)
{
    memory_fill(scene->driver, work_address(scene, stream), WORK_BYTES, 1, stream);
    return vmm__clock_now(&scene->clock);
}

/* All work ends; no call has asked yet. */
static inline void work_end(struct scene *scene)
{
    vmm__sim_lag_set(scene->driver, 0);
}

static inline void work_hold(struct scene *scene)
{
    vmm__sim_lag_set(scene->driver, UINT64_C(1) << 40);
}

static inline uint64_t calls_of(const struct scene *scene, enum driver_call call)
{
    return vmm__driver_calls(scene->driver, call);
}

static inline uint64_t records(const struct scene *scene)
{
    return calls_of(scene, DRIVER_CALL_clock_record);
}

static inline uint64_t ticks(const struct scene *scene)
{
    return atomic_load(&scene->driver->counts.clock_ticks);
}

static inline uint64_t pauses(const struct scene *scene)
{
    return atomic_load(&scene->driver->counts.clock_pauses);
}

static inline vmm_clock_kind kind_of(const struct scene *scene)
{
    return atomic_load(&scene->clock.kind);
}

/* A clock of a lane, of stream 1; the end of the stream, and of the clock. */
static inline void own_open(struct scene *scene, struct clock *own)
{
    vmm__clock_init_own(own, &scene->clock, STREAM(1));
}

static inline vmm_status own_end(struct clock *own)
{
    vmm_status status = vmm__clock_end_begin(own);
    if (status == VMM_OK)
        vmm__clock_end(own);
    return status;
}

static inline void own_close(struct clock *own)
{
    assert_ok(vmm__clock_check(own));
    assert_ok(vmm__clock_fini(own));
}

static inline vmm_status announce(struct scene *scene, vmm_stream stream)
{
    return vmm__captures_announce(scene->driver, stream);
}

static inline bool retract(struct scene *scene, vmm_stream stream)
{
    return vmm__captures_retract(scene->driver, stream);
}

static inline void capture_begin(struct scene *scene, vmm_stream stream)
{
    assert_ok(vmm__driver_capture_begin(scene->driver, stream));
}

/* It has not been spoiled. */
static inline void capture_end(struct scene *scene, vmm_stream stream)
{
    assert_ok(vmm__driver_capture_end(scene->driver, stream));
}

static inline vmm_status query(struct scene *scene, uint64_t epoch)
{
    return vmm__clock_query(&scene->clock, epoch);
}

/* Lets a test replace calls in scene->wrapped. */
static inline void calls_wrap(struct scene *scene)
{
    scene->wrapped = *scene->ops;
    scene->driver->ops = &scene->wrapped;
}

#endif
