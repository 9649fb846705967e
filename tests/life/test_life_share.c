/*
 * Memory that two processes share, on the host driver: contents both ways, and every order in which they end.
 *
 * Each test runs this program once more, as `test_life_share importer|exporter SOCKET`. The processes talk through the
 * socket: a share, then single bytes that say what was done.
 */
#define _GNU_SOURCE
#include "life/child.h"
#include "support/folder_support.h"
#include "support/made_support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BLOCK_BYTES = 5 << 20, ANSWER_OFFSET = 1 << 20 };
enum { EXPORT_BYTE = 0x5a, ANSWER_BYTE = 0x3c, OTHER_BYTE = 0x77 };

/* ---- Both processes ------------------------------------------------------------------------ */

static vmm_cache *cache_make(void)
{
    vmm_config config = CONFIG(.driver = VMM_DRIVER_HOST, .device_bytes = 64 * MIB);
    vmm_cache *cache = NULL;
    CHILD_REQUIRES(vmm_create(&config, &cache) == VMM_OK);
    return cache;
}

static vmm_pool *pool_make(vmm_cache *cache)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *pool = NULL;
    options.shareable = 1;
    CHILD_REQUIRES(vmm_pool_create(cache, &options, &pool) == VMM_OK);
    return pool;
}

static void *block_make(vmm_pool *pool, int byte)
{
    void *block = NULL;
    CHILD_REQUIRES(vmm_alloc_from(pool, BLOCK_BYTES, NULL, &block) == VMM_OK);
    memset(block, byte, BLOCK_BYTES);
    return block;
}

static vmm_share *block_send(vmm_cache *cache, void *block, int socket)
{
    vmm_share *share = NULL;
    CHILD_REQUIRES(vmm_share_export(cache, block, &share) == VMM_OK);
    CHILD_REQUIRES(vmm_share_send(share, socket) == VMM_OK);
    return share;
}

static unsigned char *block_receive(vmm_cache *cache, int socket)
{
    vmm_share *share = NULL;
    void *block = NULL;
    CHILD_REQUIRES(vmm_share_receive(socket, &share) == VMM_OK);
    CHILD_REQUIRES(vmm_share_import(cache, share, NULL, &block) == VMM_OK);
    CHILD_REQUIRES(vmm_share_close(share, 0) == VMM_OK);
    return block;
}

static bool has_only(const unsigned char *bytes, size_t count, int byte)
{
    return bytes[0] == byte && memcmp(bytes, bytes + 1, count - 1) == 0;
}

static void say(int socket, char what)
{
    CHILD_REQUIRES(send(socket, &what, 1, MSG_NOSIGNAL) == 1);
}

static void hear(int socket, char what)
{
    char heard = 0;
    CHILD_REQUIRES(read(socket, &heard, 1) == 1 && heard == what);
}

/* ---- The other process --------------------------------------------------------------------- */

/* Checks the block, answers in it, and checks it again when told to. */
static int importer_main(int socket)
{
    vmm_cache *cache = cache_make();
    unsigned char *block = block_receive(cache, socket);
    CHILD_REQUIRES(has_only(block, BLOCK_BYTES, EXPORT_BYTE));
    memset(block + ANSWER_OFFSET, ANSWER_BYTE, BLOCK_BYTES - ANSWER_OFFSET);
    say(socket, 'a');
    hear(socket, 'c');
    CHILD_REQUIRES(has_only(block, ANSWER_OFFSET, EXPORT_BYTE));
    CHILD_REQUIRES(has_only(block + ANSWER_OFFSET, BLOCK_BYTES - ANSWER_OFFSET, ANSWER_BYTE));
    CHILD_REQUIRES(vmm_free(cache, block) == VMM_OK);
    CHILD_REQUIRES(vmm_destroy(cache) == VMM_OK);
    return 0;
}

/* Sends a block, and ends with it when told to. */
_Noreturn static void exporter_main(int socket)
{
    vmm_cache *cache = cache_make();
    (void)block_send(cache, block_make(pool_make(cache), EXPORT_BYTE), socket);
    hear(socket, 'e');
    child_leave(); /* the cache is not destroyed */
}

/* ---- This process -------------------------------------------------------------------------- */

struct scene {
    int descriptors;
    vmm_cache *cache;
    int socket;
    pid_t other;
};

/* Runs the program in another process, which gets the other end of the socket. */
static struct scene scene_begin(const char *role)
{
    struct scene scene = { .descriptors = descriptors_open() };
    int sockets[2];
    char number[16];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    (void)snprintf(number, sizeof number, "%d", sockets[1]);
    scene.socket = sockets[0];
    scene.cache = cache_make();
    scene.other = fork();
    if (scene.other == 0) {
        (void)close(sockets[0]);
        (void)execl("/proc/self/exe", "test_life_share", role, number, (char *)NULL);
        _exit(3);
    }
    (void)close(sockets[1]);
    return scene;
}

static void other_ended(const struct scene *scene)
{
    assert_true(child_ended(scene->other, 0));
}

/* Nothing may be left: no memory, no descriptor. */
static void scene_end(const struct scene *scene)
{
    assert_ok(vmm_wait(scene->cache));
    assert_ok(vmm_trim(scene->cache, 0, NULL));
    vmm_stats stats = stats_of(scene->cache);
    assert_int_equal(stats.reserved_bytes.current, 0);
    assert_int_equal(stats.imported_bytes, 0);
    assert_ok(vmm_destroy(scene->cache));
    (void)close(scene->socket);
    assert_int_equal(descriptors_open(), scene->descriptors);
}

static void answer_check(const unsigned char *block)
{
    assert_true(has_only(block, ANSWER_OFFSET, EXPORT_BYTE));
    assert_true(has_only(block + ANSWER_OFFSET, BLOCK_BYTES - ANSWER_OFFSET, ANSWER_BYTE));
}

/* Sends a block to the importer, which answers in it. */
static vmm_share *block_answered(const struct scene *scene, void *block)
{
    vmm_share *share = block_send(scene->cache, block, scene->socket);
    hear(scene->socket, 'a');
    return share;
}

/* ---- Tests --------------------------------------------------------------------------------- */

TEST(processes_see_each_others_bytes)
{
    struct scene scene = scene_begin("importer");
    void *block = block_make(pool_make(scene.cache), EXPORT_BYTE);
    vmm_share *share = block_answered(&scene, block);
    answer_check(block);
    say(scene.socket, 'c');
    other_ended(&scene);
    assert_ok(vmm_share_close(share, 1));
    assert_ok(vmm_free(scene.cache, block));
    scene_end(&scene);
}

TEST(an_exporter_may_free_first)
{
    struct scene scene = scene_begin("importer");
    vmm_pool *pool = pool_make(scene.cache);
    void *block = block_make(pool, EXPORT_BYTE);
    vmm_share *share = block_answered(&scene, block);
    assert_ok(vmm_free(scene.cache, block));
    assert_ok(vmm_trim(scene.cache, 0, NULL));
    void *next = block_make(pool, OTHER_BYTE);
    assert_ptr_not_equal(next, block);
    say(scene.socket, 'c'); /* it checks that its block is whole */
    other_ended(&scene);
    assert_ok(vmm_share_close(share, 1));
    assert_ok(vmm_free(scene.cache, next));
    scene_end(&scene);
}

TEST(a_killed_importer_changes_nothing)
{
    struct scene scene = scene_begin("importer");
    void *block = block_make(pool_make(scene.cache), EXPORT_BYTE);
    vmm_share *share = block_answered(&scene, block);
    child_kill(scene.other);
    answer_check(block);
    assert_ok(vmm_free(scene.cache, block));
    assert_ok(vmm_share_close(share, 1));
    scene_end(&scene);
}

TEST(an_importer_that_never_receives_changes_nothing)
{
    struct scene scene = scene_begin("exporter"); /* it waits for a byte, and gets a share */
    void *block = block_make(pool_make(scene.cache), EXPORT_BYTE);
    child_kill(scene.other);
    vmm_share *share;
    assert_ok(vmm_share_export(scene.cache, block, &share));
    assert_status(vmm_share_send(share, scene.socket), VMM_ERR_DRIVER);
    assert_ok(vmm_share_close(share, 1));
    assert_ok(vmm_free(scene.cache, block));
    scene_end(&scene);
}

TEST(an_exporter_may_exit_before_the_import)
{
    struct scene scene = scene_begin("exporter");
    vmm_share *share;
    void *block;
    assert_ok(vmm_share_receive(scene.socket, &share));
    say(scene.socket, 'e');
    other_ended(&scene);
    assert_ok(vmm_share_import(scene.cache, share, NULL, &block));
    assert_true(has_only(block, BLOCK_BYTES, EXPORT_BYTE));
    assert_ok(vmm_free(scene.cache, block));
    assert_ok(vmm_share_close(share, 0));
    scene_end(&scene);
}

TEST(an_exporter_may_be_killed_after_the_import)
{
    struct scene scene = scene_begin("exporter");
    unsigned char *block = block_receive(scene.cache, scene.socket);
    child_kill(scene.other);
    assert_true(has_only(block, BLOCK_BYTES, EXPORT_BYTE));
    memset(block, OTHER_BYTE, BLOCK_BYTES);
    assert_true(has_only(block, BLOCK_BYTES, OTHER_BYTE));
    assert_ok(vmm_free(scene.cache, block));
    scene_end(&scene);
}

/* ---- fork() -------------------------------------------------------------------------------- */

static struct inherited {
    vmm_cache *cache;
    vmm_share *share;
    void *block;
} inherited;

static void inherited_is_refused(void *context)
{
    const struct inherited *from = context;
    vmm_share *share;
    void *block;
    CHILD_REQUIRES(vmm_share_send(from->share, 0) == VMM_ERR_FORKED);
    CHILD_REQUIRES(vmm_share_close(from->share, 1) == VMM_ERR_FORKED);
    CHILD_REQUIRES(vmm_share_import(from->cache, from->share, NULL, &block) == VMM_ERR_FORKED);
    CHILD_REQUIRES(vmm_share_export(from->cache, from->block, &share) == VMM_ERR_FORKED);
    vmm_cache *own = cache_make();
    CHILD_REQUIRES(vmm_share_import(own, from->share, NULL, &block) == VMM_ERR_FORKED);
    CHILD_REQUIRES(vmm_destroy(own) == VMM_OK);
}

TEST(a_child_of_fork_cannot_use_its_parents_shares)
{
    inherited.cache = cache_make();
    inherited.block = block_make(pool_make(inherited.cache), EXPORT_BYTE);
    assert_ok(vmm_share_export(inherited.cache, inherited.block, &inherited.share));
    child_runs(inherited_is_refused, &inherited);
    assert_ok(vmm_share_close(inherited.share, 0));
    assert_ok(vmm_destroy(inherited.cache));
}

int main(int argc, char **argv)
{
    if (argc == 3)
        (void)alarm(CHILD_SECONDS);
    if (argc == 3 && strcmp(argv[1], "importer") == 0)
        return importer_main(atoi(argv[2]));
    if (argc == 3 && strcmp(argv[1], "exporter") == 0)
        exporter_main(atoi(argv[2]));
    return tests_run(NULL, NULL);
}
