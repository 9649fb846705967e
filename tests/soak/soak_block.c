/* The soak's blocks: every use of them is ordered, or told to the cache. See soak.h. */
#include "soak.h"

#define LARGEST_BYTES (UINT64_C(256) << 20)

/* ---- Order ----------------------------------------------------------------------------------- */

void soak_stream_follows(struct soak *soak, unsigned later, unsigned earlier)
{
    if (later == earlier)
        return;
    soak_expect(soak, "event record",
                soak->ops->event_record(soak->driver, soak->event, soak->streams[earlier]));
    soak_expect(soak, "stream wait",
                soak->ops->stream_wait(soak->driver, soak->streams[later], soak->event));
}

static void users_followed(struct soak *soak, const struct soak_block *block, unsigned later)
{
    for (unsigned user = 0; user < SOAK_STREAMS; user++) {
        if ((block->users >> user & 1) != 0)
            soak_stream_follows(soak, later, user);
    }
}

/* ---- Work ------------------------------------------------------------------------------------ */

static void block_read(struct soak *soak, const struct soak_block *block, unsigned stream)
{
    soak_expect(soak, "check",
                vmm__driver_check(soak->driver, (uintptr_t)block->address, block->bytes,
                                  block->word, soak->streams[stream]));
}

static void block_write(struct soak *soak, struct soak_block *block, unsigned stream)
{
    block->word = ++soak->words;
    soak_expect(soak, "fill",
                vmm__driver_fill(soak->driver, (uintptr_t)block->address, block->bytes, block->word,
                                 soak->streams[stream]));
}

/* ---- Operations ------------------------------------------------------------------------------ */

/* Mostly of any order of size; now and then many alike, or at the edges of how sizes are treated. */
uint64_t soak_bytes_drawn(struct soak *soak)
{
    static const uint64_t edges[] = {
        1,       512,           513,     8192,          8193,
        1 << 20, (1 << 20) + 1, 2 << 20, (2 << 20) - 1, (4 << 20) + 512,
        24 << 20
    };
    if (soak_dice(soak, 8))
        return edges[random_next(&soak->random) % (sizeof edges / sizeof edges[0])];
    return soak_log_between(soak, 1, LARGEST_BYTES);
}

void soak_block_take(struct soak *soak, struct soak_block *block)
{
    uint64_t bytes = soak_bytes_drawn(soak);
    unsigned owner = (unsigned)(random_next(&soak->random) % soak->settings.streams);
    if (soak->live_bytes + bytes > soak->settings.live_bytes || soak_is_captured(soak, 1U << owner))
        return;
    void *address;
    vmm_status status = vmm_alloc(soak->cache, bytes, soak->streams[owner], &address);
    soak->sums.allocations++;
    bool is_shortage = status == VMM_ERR_DEVICE_OOM || status == VMM_ERR_ADDRESS_SPACE;
    if (is_shortage && soak->settings.may_fail)
        return;
    soak_expect(soak, "vmm_alloc", status);
    if (status != VMM_OK)
        return;
    *block = (struct soak_block){ .address = address, .bytes = bytes, .owner = owner };
    soak->live_blocks++;
    soak->live_bytes += bytes;
    block_write(soak, block, owner);
}

void soak_block_give(struct soak *soak, struct soak_block *block)
{
    if (!soak_is_captured(soak, 1U << block->owner))
        block_read(soak, block, block->owner);
    soak_expect(soak, "vmm_free", vmm_free(soak->cache, block->address));
    soak->live_blocks--;
    soak->live_bytes -= block->bytes;
    *block = (struct soak_block){ .address = NULL };
}

/* The other stream only reads, and the owner waits until it has: nothing to tell the cache. */
static void block_lend(struct soak *soak, struct soak_block *block, unsigned user)
{
    soak_stream_follows(soak, user, block->owner);
    block_read(soak, block, user);
    soak_stream_follows(soak, block->owner, user);
}

void soak_use_told(struct soak *soak, void *address, unsigned user)
{
    if (soak->lie != LIE_USE)
        soak_expect(soak, "vmm_use", vmm_use(soak->cache, address, soak->streams[user]));
}

void soak_block_use(struct soak *soak, struct soak_block *block)
{
    unsigned user = (unsigned)(random_next(&soak->random) % soak->settings.streams);
    if (soak_is_captured(soak, block->users | 1U << block->owner | 1U << user))
        return;
    soak->sums.uses++;
    if (soak_dice(soak, 4)) {
        block_lend(soak, block, user);
        return;
    }
    soak_use_told(soak, block->address, user);
    soak_stream_follows(soak, user, block->owner);
    if (soak_dice(soak, 3)) {
        users_followed(soak, block, user);
        block_write(soak, block, user);
        soak_stream_follows(soak, block->owner, user);
    } else {
        block_read(soak, block, user);
    }
    if (user != block->owner)
        block->users |= 1U << user;
}

void soak_block_touch(struct soak *soak, struct soak_block *block)
{
    if (soak_is_captured(soak, block->users | 1U << block->owner))
        return;
    if (soak_dice(soak, 4)) {
        users_followed(soak, block, block->owner);
        block_write(soak, block, block->owner);
    } else {
        block_read(soak, block, block->owner);
    }
}

void soak_block_pin(struct soak *soak, struct soak_block *block)
{
    block->is_pinned = !block->is_pinned;
    if (block->is_pinned)
        soak_expect(soak, "vmm_pin", vmm_pin(soak->cache, block->address));
    else
        soak_expect(soak, "vmm_unpin", vmm_unpin(soak->cache, block->address));
}

struct soak_block *soak_block_any(struct soak *soak)
{
    enum { REACH = 32 };
    uint64_t start = random_next(&soak->random);
    for (uint64_t i = 0; i < REACH && soak->live_blocks > 0; i++) {
        struct soak_block *block = &soak->blocks[(start + i) % soak->settings.slots];
        if (block->address != NULL)
            return block;
    }
    return NULL;
}
