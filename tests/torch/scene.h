/*
 * A program on a device of its own: random operations of several streams through the hooks, on the sim
 * driver, whose work lags behind; and checks of what histories, figures and statistics say of it.
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
    unsigned pool; /* that is begun; 0: none */
    unsigned pools;
    bool is_alone; /* no other thread uses the device */
};

/* What all devices are made with: plain, decay, wait, compact, no_caching or guard. Before all else. */
void scene_settings(const char *kind);

/* How many operations are enough: fewer where they take longer. */
unsigned scene_operations(void);

/* Whether memory comes and goes by itself, so that figures of memory do not stand still. */
bool scene_decays(void);

/* Whether all devices have a guard; and what is to be called when one tells of a misuse: NULL: none is to be told. */
bool scene_is_guarded(void);
void scene_misuse_expect(void (*expected)(void));

/* A device that was not used before; lag: see vmm__sim_lag_set(). */
struct scene scene_begin(uint64_t seed, uint64_t lag);

/* A number below `end`. */
uint64_t scene_draw(struct scene *scene, uint64_t end);

vmm_stream scene_stream(unsigned number);

/* One random operation; giving back; a write of the program's beyond a block; and giving all back. */
void scene_step(struct scene *scene);
void scene_drop(struct scene *scene, struct piece *piece);
void scene_overrun(struct scene *scene, const struct piece *piece);
void scene_clear(struct scene *scene);

/* Figures, statistics and the picture must say the same, if no other thread is at work. */
void scene_figures_check(const struct scene *scene, const vmm_torch_snapshot *snapshot);

/* Takes a picture and plays it back, and checks figures if the scene is alone. */
struct playback scene_check(const struct scene *scene);

#endif
