/*
 * test_life_gpu_lost [SCENE]: a cache on a GPU whose device is lost: a kernel breaks the context, or the program
 * resets or destroys it. Each scene has a process of its own, because CUDA may be of no use afterwards; it must end by
 * itself, in time and with 0, and the end of the cache must have given its memory back. Says what CUDA leaves open:
 * which call notices, and whether a new cache can be made.
 *
 * Runs on the libcuda that is found: the real one, or the fake. Skipped (77) without either, unless VMM_REQUIRE_GPU=1.
 */
#define _GNU_SOURCE
#include "life/gpu_after.h"

struct plot {
    const char *name;
    void (*run)(struct scene *scene, const struct loss *loss);
    struct loss loss;
};

/* ---- Plots --------------------------------------------------------------------------------------- */

static void run_broken(struct scene *scene, const struct loss *loss)
{
    scene_begun(scene);
    device_lost(scene, loss);
    loss_noticed(scene, loss->finder);
    lost_cache_obeys(scene);
    scene_ended(scene);
    new_cache_tried(scene);
}

static void run_reset(struct scene *scene, const struct loss *loss)
{
    vmm_cache *cache = NULL;
    scene_begun(scene);
    device_lost(scene, loss);
    loss_noticed(scene, loss->finder);
    if (loss->is_anew)
        CHILD_REQUIRES(strstr(scene->line, "the context was reset") != NULL);
    lost_cache_obeys(scene);
    scene_ended(scene);
    CHILD_REQUIRES(cache_wanted(scene, &cache) == VMM_OK);
    new_cache_works(scene, cache);
}

/* The new cache is there before the old one has noticed anything, and outlives it. */
static void run_beside(struct scene *scene, const struct loss *loss)
{
    void *block;
    vmm_cache *cache = NULL;
    scene_begun(scene);
    device_lost(scene, loss);
    CHILD_REQUIRES(cache_wanted(scene, &cache) == VMM_OK);
    CHILD_REQUIRES(vmm_alloc(cache, 3 * MIB, scene->streams[0], &block) == VMM_OK);
    block_written(scene, block, 3 * MIB, 5, scene->streams[0]);
    loss_noticed(scene, loss->finder);
    lost_cache_obeys(scene);
    (void)lost_cache_ended(scene);
    CUDA_REQUIRES(cuda.cuCtxSynchronize());
    block_verified(block, 3 * MIB, 5);
    cache_works(scene, cache);
    CHILD_REQUIRES(vmm_free(cache, block) == VMM_OK && vmm_destroy(cache) == VMM_OK);
    memory_is_back(scene);
    nothing_left(scene);
}

/* Nobody notices before the end of the cache, whose blocks are live. */
static void run_ended(struct scene *scene, const struct loss *loss)
{
    device_opened(scene);
    CHILD_REQUIRES(cache_wanted(scene, &scene->cache) == VMM_OK);
    cache_filled(scene);
    device_lost(scene, loss);
    scene_ended(scene);
    if (loss->fault != RESET) {
        new_cache_tried(scene);
        return;
    }
    CHILD_REQUIRES(cache_wanted(scene, &scene->cache) == VMM_OK);
    new_cache_works(scene, scene->cache);
}

static void run_two(struct scene *scene, const struct loss *loss)
{
    void *block;
    vmm_cache *second = NULL;
    scene_begun(scene);
    CHILD_REQUIRES(cache_wanted(scene, &second) == VMM_OK);
    CHILD_REQUIRES(vmm_alloc(second, 3 * MIB, scene->streams[0], &block) == VMM_OK);
    device_lost(scene, loss);
    loss_noticed(scene, loss->finder);
    CHILD_REQUIRES(vmm_wait(second) == VMM_ERR_LOST);
    char line[512];
    (void)snprintf(line, sizeof line, "%s", vmm_last_error());
    CHILD_REQUIRES(refusal_trouble(second, line) == NULL);
    lost_cache_obeys(scene);
    (void)lost_cache_ended(scene);
    CHILD_REQUIRES(vmm_free(second, block) == VMM_OK);
    CHILD_REQUIRES(vmm_destroy(second) == VMM_ERR_LOST && strcmp(vmm_last_error(), line) == 0);
    nothing_left(scene);
    if (loss->fault != RESET)
        return;
    device_held(scene);
    memory_is_back(scene);
}

/* The program ends with the lost cache. */
static void run_left(struct scene *scene, const struct loss *loss)
{
    scene_begun(scene);
    device_lost(scene, loss);
    if (!loss->is_silent)
        loss_noticed(scene, loss->finder);
}

/* ---- A second process looks on: one whose context is broken cannot be told what is free ----------- */

enum stage { STAGE_FILLED, STAGE_NOTICED, STAGE_ENDED, STAGES };

struct witness {
    struct scene *scene;
    const struct loss *loss;
    int told[2]; /* pipe: a byte for each stage that the child has come to */
    int seen[2]; /* pipe: a byte for each that was looked at */
};

static void byte_sent(int pipe)
{
    CHILD_REQUIRES(write(pipe, "", 1) == 1);
}

static void byte_awaited(int pipe)
{
    char byte;
    CHILD_REQUIRES(read(pipe, &byte, 1) == 1);
}

static void stage_looked_at(const struct witness *witness)
{
    byte_sent(witness->told[1]);
    byte_awaited(witness->seen[0]);
}

static void watched_begun(void *context)
{
    const struct witness *witness = context;
    struct scene *scene = witness->scene;
    (void)close(witness->told[0]);
    (void)close(witness->seen[1]);
    scene_begun(scene);
    stage_looked_at(witness);
    device_lost(scene, witness->loss);
    loss_noticed(scene, witness->loss->finder);
    stage_looked_at(witness);
    lost_cache_obeys(scene);
    scene_ended(scene);
    stage_looked_at(witness);
}

/* The fake's memory is each process's own: there only the child looks. */
static void run_watched(struct scene *scene, const struct loss *loss)
{
    uint64_t free_bytes[STAGES];
    struct witness witness = { .scene = scene, .loss = loss };
    CHILD_REQUIRES(pipe(witness.told) == 0 && pipe(witness.seen) == 0);
    pid_t child = child_begun(watched_begun, &witness); /* before this process has started CUDA */
    (void)close(witness.told[1]);
    (void)close(witness.seen[0]);
    device_opened(scene);
    for (int stage = 0; stage < STAGES; stage++) {
        byte_awaited(witness.told[0]);
        free_bytes[stage] = device_free() / MIB;
        byte_sent(witness.seen[1]);
    }
    CHILD_REQUIRES(child_ended(child, 0));
    (void)printf(
        "  free memory: %llu MiB with the cache, %llu once it was lost, %llu after its end\n",
        (unsigned long long)free_bytes[STAGE_FILLED], (unsigned long long)free_bytes[STAGE_NOTICED],
        (unsigned long long)free_bytes[STAGE_ENDED]);
    CHILD_REQUIRES(scene->fake != NULL ||
                   free_bytes[STAGE_ENDED] + CONTEXT_MIB > free_bytes[STAGE_NOTICED] + HELD_MIB);
}

/* ---- Contexts of the program's own: caches are in the primary one, whatever is current ----------- */

static CUcontext context_made(const struct scene *scene)
{
    CUcontext own = NULL;
    CUresult (*make)(CUcontext * context, unsigned flags, CUdevice device);
    CHILD_REQUIRES(libcuda_find("cuCtxCreate_v2", &make));
    CUDA_REQUIRES(make(&own, 0, scene->device));
    return own;
}

static void run_own(struct scene *scene, const struct loss *loss)
{
    (void)loss;
    CUcontext current = NULL;
    device_opened(scene);
    CUcontext own = context_made(scene);
    CHILD_REQUIRES(cache_wanted(scene, &scene->cache) == VMM_OK);
    CHILD_REQUIRES(vmm_alloc(scene->cache, 3 * MIB, scene->streams[0], &scene->blocks[0]) ==
                   VMM_OK);
    CUDA_REQUIRES(cuda.cuCtxGetCurrent(&current));
    CHILD_REQUIRES(current == own);
    CUDA_REQUIRES(cuda.cuCtxDestroy(own));
    block_written(scene, scene->blocks[0], 3 * MIB, 9, scene->streams[0]);
    cache_works(scene, scene->cache);
    block_verified(scene->blocks[0], 3 * MIB, 9);
    CHILD_REQUIRES(vmm_destroy(scene->cache) == VMM_OK);
    nothing_left(scene);
}

struct elsewhere {
    struct scene *scene;
    CUcontext own;
    pthread_barrier_t turn;
};

/* A thread whose current context another one destroys. */
static void *thread_elsewhere(void *context)
{
    void *block;
    struct elsewhere *elsewhere = context;
    vmm_cache *cache = elsewhere->scene->cache;
    CUDA_REQUIRES(cuda.cuCtxPushCurrent(elsewhere->own));
    (void)pthread_barrier_wait(&elsewhere->turn);
    (void)pthread_barrier_wait(&elsewhere->turn);
    CHILD_REQUIRES(vmm_alloc(cache, 32 * MIB, elsewhere->scene->streams[0], &block) == VMM_OK);
    CHILD_REQUIRES(vmm_free(cache, block) == VMM_OK && vmm_trim(cache, 0, NULL) == VMM_OK);
    return NULL;
}

static void run_elsewhere(struct scene *scene, const struct loss *loss)
{
    (void)loss;
    pthread_t thread;
    device_opened(scene);
    CHILD_REQUIRES(cache_wanted(scene, &scene->cache) == VMM_OK);
    struct elsewhere elsewhere = { .scene = scene, .own = context_made(scene) };
    CHILD_REQUIRES(pthread_barrier_init(&elsewhere.turn, NULL, 2) == 0);
    CHILD_REQUIRES(pthread_create(&thread, NULL, thread_elsewhere, &elsewhere) == 0);
    (void)pthread_barrier_wait(&elsewhere.turn);
    CUDA_REQUIRES(cuda.cuCtxDestroy(elsewhere.own));
    (void)pthread_barrier_wait(&elsewhere.turn);
    CHILD_REQUIRES(pthread_join(thread, NULL) == 0);
    cache_works(scene, scene->cache);
    CHILD_REQUIRES(vmm_destroy(scene->cache) == VMM_OK);
    nothing_left(scene);
}

/* ---- All of them --------------------------------------------------------------------------------- */

static const struct plot plots[] = {
    { "freed", run_broken, { .fault = FREED } },
    { "freed.silent", run_broken, { .fault = FREED, .is_silent = true } },
    { "beyond", run_broken, { .fault = BEYOND } },
    { "assert", run_broken, { .fault = ASSERT } },
    { "misaligned", run_broken, { .fault = MISALIGNED } },
    { "trap.wait", run_broken, { .fault = TRAP } },
    { "trap.memory", run_broken, { .fault = TRAP, .finder = BY_MEMORY } },
    { "trap.alloc", run_broken, { .fault = TRAP, .finder = BY_ALLOC } },
    { "trap.trim", run_broken, { .fault = TRAP, .finder = BY_TRIM } },
    { "trap.tick", run_broken, { .fault = TRAP, .finder = BY_TICK } },
    { "trap.pool", run_broken, { .fault = TRAP, .finder = BY_POOL } },
    { "trap.free", run_broken, { .fault = TRAP, .finder = BY_FREE } },
    { "trap.end", run_ended, { .fault = TRAP, .is_silent = true } },
    { "trap.two", run_two, { .fault = TRAP } },
    { "trap.left", run_left, { .fault = TRAP } },
    { "trap.unseen", run_left, { .fault = TRAP, .is_silent = true } },
    { "trap.watched", run_watched, { .fault = TRAP } },
    { "freed.watched", run_watched, { .fault = FREED } },
    { "reset.watched", run_watched, { .fault = RESET } },
    { "reset.wait", run_reset, { .fault = RESET } },
    { "reset.alloc", run_reset, { .fault = RESET, .finder = BY_ALLOC } },
    { "reset.anew", run_reset, { .fault = RESET, .finder = BY_ALLOC, .is_anew = true } },
    { "reset.beside", run_beside, { .fault = RESET, .finder = BY_ALLOC, .is_anew = true } },
    { "reset.end", run_ended, { .fault = RESET } },
    { "reset.two", run_two, { .fault = RESET } },
    { "reset.left", run_left, { .fault = RESET } },
    { "context.own", run_own, { .fault = TRAP } },
    { "context.elsewhere", run_elsewhere, { .fault = TRAP } },
};

enum { PLOTS = sizeof plots / sizeof *plots };

static struct scene the_scene;

static int scene_run(const char *name)
{
    for (unsigned i = 0; i < PLOTS; i++) {
        if (strcmp(plots[i].name, name) != 0)
            continue;
        (void)printf("%s:\n", name);
        plots[i].run(&the_scene, &plots[i].loss);
        return 0;
    }
    return 2;
}

/* This process never starts CUDA: a program of its own does. */
static void program_run(void *name)
{
    char *arguments[] = { "test_life_gpu_lost", name, NULL };
    (void)execv("/proc/self/exe", arguments);
    _exit(127);
}

static void scene_is_survived(void **state)
{
    child_runs(program_run, *state);
}

static int device_looked_for(void)
{
    (void)libcuda_started("test_life_gpu_lost");
    return 0;
}

static bool device_is_missing(void)
{
    int status = -1;
    pid_t child = child_begun(program_run, "device");
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == LIBCUDA_SKIPPED;
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[PLOTS];
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1)
        return strcmp(argv[1], "device") == 0 ? device_looked_for() : scene_run(argv[1]);
    if (device_is_missing())
        return LIBCUDA_SKIPPED;
    for (unsigned i = 0; i < PLOTS; i++) {
        union {
            const char *constant;
            void *state;
        } name = { .constant = plots[i].name };
        tests[i] = (struct CMUnitTest){ .name = plots[i].name,
                                        .test_func = scene_is_survived,
                                        .initial_state = name.state };
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
