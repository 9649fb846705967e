/*
 * test_life_gpu_lost [SCENE]: a cache on a GPU whose device is lost: a kernel breaks the context, or the program resets
 * or destroys it. Each scene has a process of its own, because CUDA may be unusable afterwards. The process must exit
 * with 0, in time, and vmm_destroy() must have released the cache's memory. Prints what CUDA leaves open: which call
 * detects the loss, and whether a new cache can be created.
 *
 * Runs on the libcuda that is found: the real one, or the fake. Skipped (77) without either, unless VMM_REQUIRE_GPU=1.
 */
#define _GNU_SOURCE
#include "life/gpu_after.h"

struct scene_case {
    const char *name;
    void (*run)(struct scene *scene, const struct loss *loss);
    struct loss loss;
};

/* ---- Scenes -------------------------------------------------------------------------------------- */

static void run_broken(struct scene *scene, const struct loss *loss)
{
    scene_start(scene);
    device_lose(scene, loss);
    loss_detect(scene, loss->finder);
    lost_cache_check(scene);
    scene_end(scene);
    new_cache_try(scene);
}

static void run_reset(struct scene *scene, const struct loss *loss)
{
    vmm_cache *cache = NULL;
    scene_start(scene);
    device_lose(scene, loss);
    loss_detect(scene, loss->finder);
    if (loss->is_anew)
        CHILD_REQUIRES(strstr(scene->line, "the context was reset") != NULL);
    lost_cache_check(scene);
    scene_end(scene);
    CHILD_REQUIRES(cache_try_create(scene, &cache) == VMM_OK);
    new_cache_check(scene, cache);
}

/* The new cache is created before the old one detects the loss, and outlives it. */
static void run_beside(struct scene *scene, const struct loss *loss)
{
    void *block;
    vmm_cache *cache = NULL;
    scene_start(scene);
    device_lose(scene, loss);
    CHILD_REQUIRES(cache_try_create(scene, &cache) == VMM_OK);
    CHILD_REQUIRES(vmm_alloc(cache, 3 * MIB, scene->streams[0], &block) == VMM_OK);
    block_write(scene, block, 3 * MIB, 5, scene->streams[0]);
    loss_detect(scene, loss->finder);
    lost_cache_check(scene);
    (void)lost_cache_destroy(scene);
    CUDA_REQUIRES(cuda.cuCtxSynchronize());
    block_verify(block, 3 * MIB, 5);
    cache_check_works(scene, cache);
    CHILD_REQUIRES(vmm_free(cache, block) == VMM_OK && vmm_destroy(cache) == VMM_OK);
    check_memory_released(scene);
    check_nothing_left(scene);
}

/* No call detects the loss before vmm_destroy(), which finds live blocks. */
static void run_ended(struct scene *scene, const struct loss *loss)
{
    device_open(scene);
    CHILD_REQUIRES(cache_try_create(scene, &scene->cache) == VMM_OK);
    cache_fill(scene);
    device_lose(scene, loss);
    scene_end(scene);
    if (loss->fault != RESET) {
        new_cache_try(scene);
        return;
    }
    CHILD_REQUIRES(cache_try_create(scene, &scene->cache) == VMM_OK);
    new_cache_check(scene, scene->cache);
}

static void run_two(struct scene *scene, const struct loss *loss)
{
    void *block;
    vmm_cache *second = NULL;
    scene_start(scene);
    CHILD_REQUIRES(cache_try_create(scene, &second) == VMM_OK);
    CHILD_REQUIRES(vmm_alloc(second, 3 * MIB, scene->streams[0], &block) == VMM_OK);
    device_lose(scene, loss);
    loss_detect(scene, loss->finder);
    CHILD_REQUIRES(vmm_wait(second) == VMM_ERR_LOST);
    char line[512];
    (void)snprintf(line, sizeof line, "%s", vmm_last_error());
    CHILD_REQUIRES(refused_calls_check(second, line) == NULL);
    lost_cache_check(scene);
    (void)lost_cache_destroy(scene);
    CHILD_REQUIRES(vmm_free(second, block) == VMM_OK);
    CHILD_REQUIRES(vmm_destroy(second) == VMM_ERR_LOST && strcmp(vmm_last_error(), line) == 0);
    check_nothing_left(scene);
    if (loss->fault != RESET)
        return;
    device_retain(scene);
    check_memory_released(scene);
}

/* The program exits without destroying the lost cache. */
static void run_left(struct scene *scene, const struct loss *loss)
{
    scene_start(scene);
    device_lose(scene, loss);
    if (!loss->is_silent)
        loss_detect(scene, loss->finder);
}

/* ---- A second process reads the free memory, because one with a broken context cannot ------------- */

enum stage { STAGE_FILLED, STAGE_NOTICED, STAGE_ENDED, STAGES };

struct witness {
    struct scene *scene;
    const struct loss *loss;
    int told[2]; /* pipe: the child writes a byte at each stage */
    int seen[2]; /* pipe: the parent answers each byte after it has read the free memory */
};

static void byte_send(int pipe)
{
    CHILD_REQUIRES(write(pipe, "", 1) == 1);
}

static void byte_await(int pipe)
{
    char byte;
    CHILD_REQUIRES(read(pipe, &byte, 1) == 1);
}

static void stage_report(const struct witness *witness)
{
    byte_send(witness->told[1]);
    byte_await(witness->seen[0]);
}

static void watched_run(void *context)
{
    const struct witness *witness = context;
    struct scene *scene = witness->scene;
    (void)close(witness->told[0]);
    (void)close(witness->seen[1]);
    scene_start(scene);
    stage_report(witness);
    device_lose(scene, witness->loss);
    loss_detect(scene, witness->loss->finder);
    stage_report(witness);
    lost_cache_check(scene);
    scene_end(scene);
    stage_report(witness);
}

/* The fake's memory belongs to each process, so there only the child's own checks count. */
static void run_watched(struct scene *scene, const struct loss *loss)
{
    uint64_t free_bytes[STAGES];
    struct witness witness = { .scene = scene, .loss = loss };
    CHILD_REQUIRES(pipe(witness.told) == 0 && pipe(witness.seen) == 0);
    pid_t child = child_begun(watched_run, &witness); /* before this process starts CUDA */
    (void)close(witness.told[1]);
    (void)close(witness.seen[0]);
    device_open(scene);
    for (int stage = 0; stage < STAGES; stage++) {
        byte_await(witness.told[0]);
        free_bytes[stage] = device_free() / MIB;
        byte_send(witness.seen[1]);
    }
    CHILD_REQUIRES(child_ended(child, 0));
    (void)printf(
        "  free memory: %llu MiB with the cache, %llu after the loss, %llu after vmm_destroy()\n",
        (unsigned long long)free_bytes[STAGE_FILLED], (unsigned long long)free_bytes[STAGE_NOTICED],
        (unsigned long long)free_bytes[STAGE_ENDED]);
    CHILD_REQUIRES(scene->fake != NULL ||
                   free_bytes[STAGE_ENDED] + CONTEXT_MIB > free_bytes[STAGE_NOTICED] + HELD_MIB);
}

/* ---- Contexts of the program's own: a cache uses the primary one, whichever is current ------------ */

static CUcontext context_create(const struct scene *scene)
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
    device_open(scene);
    CUcontext own = context_create(scene);
    CHILD_REQUIRES(cache_try_create(scene, &scene->cache) == VMM_OK);
    CHILD_REQUIRES(vmm_alloc(scene->cache, 3 * MIB, scene->streams[0], &scene->blocks[0]) ==
                   VMM_OK);
    CUDA_REQUIRES(cuda.cuCtxGetCurrent(&current));
    CHILD_REQUIRES(current == own);
    CUDA_REQUIRES(cuda.cuCtxDestroy(own));
    block_write(scene, scene->blocks[0], 3 * MIB, 9, scene->streams[0]);
    cache_check_works(scene, scene->cache);
    block_verify(scene->blocks[0], 3 * MIB, 9);
    CHILD_REQUIRES(vmm_destroy(scene->cache) == VMM_OK);
    check_nothing_left(scene);
}

struct elsewhere {
    struct scene *scene;
    CUcontext own;
    pthread_barrier_t turn;
};

/* A thread whose current context is destroyed by another thread. */
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
    device_open(scene);
    CHILD_REQUIRES(cache_try_create(scene, &scene->cache) == VMM_OK);
    struct elsewhere elsewhere = { .scene = scene, .own = context_create(scene) };
    CHILD_REQUIRES(pthread_barrier_init(&elsewhere.turn, NULL, 2) == 0);
    CHILD_REQUIRES(pthread_create(&thread, NULL, thread_elsewhere, &elsewhere) == 0);
    (void)pthread_barrier_wait(&elsewhere.turn);
    CUDA_REQUIRES(cuda.cuCtxDestroy(elsewhere.own));
    (void)pthread_barrier_wait(&elsewhere.turn);
    CHILD_REQUIRES(pthread_join(thread, NULL) == 0);
    cache_check_works(scene, scene->cache);
    CHILD_REQUIRES(vmm_destroy(scene->cache) == VMM_OK);
    check_nothing_left(scene);
}

/* ---- The table ----------------------------------------------------------------------------------- */

static const struct scene_case cases[] = {
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

enum { CASES = sizeof cases / sizeof *cases };

static struct scene the_scene;

static int scene_run(const char *name)
{
    for (unsigned i = 0; i < CASES; i++) {
        if (strcmp(cases[i].name, name) != 0)
            continue;
        (void)printf("%s:\n", name);
        cases[i].run(&the_scene, &cases[i].loss);
        return 0;
    }
    return 2;
}

/* Runs another copy of this program, because this process must not start CUDA. */
static void program_run(void *name)
{
    char *arguments[] = { "test_life_gpu_lost", name, NULL };
    (void)execv("/proc/self/exe", arguments);
    _exit(127);
}

static void scene_ends_well(void **state)
{
    child_runs(program_run, *state);
}

static int device_find(void)
{
    (void)libcuda_start("test_life_gpu_lost");
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
    struct CMUnitTest tests[CASES];
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1)
        return strcmp(argv[1], "device") == 0 ? device_find() : scene_run(argv[1]);
    if (device_is_missing())
        return LIBCUDA_SKIPPED;
    for (unsigned i = 0; i < CASES; i++) {
        union {
            const char *constant;
            void *state;
        } name = { .constant = cases[i].name };
        tests[i] = (struct CMUnitTest){ .name = cases[i].name,
                                        .test_func = scene_ends_well,
                                        .initial_state = name.state };
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
