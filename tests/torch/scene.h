/*
 * A random program on a device of its own: operations of several streams through the hooks, on the sim driver, whose
 * work lags behind; and checks that histories, snapshots and statistics agree.
 */
#ifndef VMM_TEST_TORCH_SCENE_H
#define VMM_TEST_TORCH_SCENE_H

#include "torch/playback.h"

enum { SCENE_STREAMS = 4, SCENE_PIECES = 64 };

struct piece {
    void *address;
    size_t bytes;
    unsigned stream;
};

struct scene {
    int device;
    uint64_t seed;
    struct piece pieces[SCENE_PIECES];
    unsigned pool; /* the open graph pool; 0: none */
    unsigned pools;
    bool is_alone; /* no other thread uses the device */
};

/* Configures all devices: plain, decay, wait, compact, no_caching or guard. Call it first. */
void scene_settings(const char *kind);

/* How many operations a test makes: fewer with settings that make them slow. */
unsigned scene_operations(void);

/* Whether decay changes memory at any time, so that memory statistics cannot be compared exactly. */
bool scene_decays(void);

/* Whether all devices run in debug mode. Sets the function called at each misuse; NULL: a misuse fails the test. */
bool scene_is_guarded(void);
void scene_misuse_expect(void (*expected)(void));

/* Returns a program on a device that no test has used; lag: see vmm__sim_lag_set(). */
struct scene scene_begin(uint64_t seed, uint64_t lag);

/* A random number below `end`. */
uint64_t scene_draw(struct scene *scene, uint64_t end);

vmm_stream scene_stream(unsigned number);

/* Makes one random operation; frees a block; writes behind a block; frees all blocks. */
void scene_step(struct scene *scene);
void scene_drop(struct scene *scene, struct piece *piece);
void scene_overrun(struct scene *scene, const struct piece *piece);
void scene_clear(struct scene *scene);

/* Requires that both kinds of statistics and the snapshot agree. No other thread may use the device. */
void scene_stats_check(const struct scene *scene, const vmm_torch_snapshot *snapshot);

/* Takes a snapshot, replays it backwards, and checks the statistics if no other thread uses the device. */
struct playback scene_check(const struct scene *scene);

#endif
