/* Steps of the tests of shares: a shareable pool, exports, imports, and what a cache says of them. */
#ifndef VMM_SHARE_SUPPORT_H
#define VMM_SHARE_SUPPORT_H

#include "support/cache_support.h"
#include "support/find_support.h"

#include "cache/share/share.h"

#include <sys/socket.h>
#include <unistd.h>

enum { GRANULE = 2 << 20 };
enum { EXPORT_WORD = 17, ANSWER_WORD = 18, NEIGHBOUR_WORD = 19 };

static inline vmm_pool *pool_with_reach(vmm_cache *cache, vmm_share_reach reach)
{
    return pool_in(cache, .shareable = (int)reach, .name = "shared");
}

static inline vmm_pool *shareable_make(vmm_cache *cache)
{
    return pool_with_reach(cache, VMM_SHARE_MACHINE);
}

static inline void *block_from(struct cache_test *test, vmm_pool *pool, size_t bytes,
                               unsigned stream)
{
    return block_in_pool(pool, bytes, test->streams[stream]);
}

static inline vmm_share *export_of(vmm_cache *cache, void *block)
{
    vmm_share *share;
    assert_ok(vmm_share_export(cache, block, &share));
    share_note(share);
    return share;
}

/* A block of a new shareable pool, and its share. */
static inline void *block_shared(struct cache_test *test, size_t bytes, vmm_share **share)
{
    void *block = block_from(test, shareable_make(test->cache), bytes, 0);
    *share = export_of(test->cache, block);
    return block;
}

static inline void *import_of(vmm_cache *cache, vmm_share *share, vmm_stream stream)
{
    void *block;
    assert_ok(vmm_share_import(cache, share, stream, &block));
    return block;
}

/* What arrives when a share is sent through a socket. */
static inline vmm_share *share_pass(vmm_share *share, int type)
{
    int sockets[2];
    vmm_share *received;
    assert_int_equal(socketpair(AF_UNIX, type, 0, sockets), 0);
    assert_ok(vmm_share_send(share, sockets[0]));
    assert_ok(vmm_share_receive(sockets[1], &received));
    share_note(received);
    (void)close(sockets[0]);
    (void)close(sockets[1]);
    return received;
}

static inline vmm_item item_of(vmm_cache *cache, const void *address)
{
    vmm_item item = VMM_ITEM_INIT;
    assert_ok(both_find(cache, address, &item));
    return item;
}

/* Destroys a cache in which no import is left. */
static inline void importer_end(vmm_cache *cache)
{
    imports_vanish(cache);
    assert_ok(vmm_destroy(cache));
}

#endif
