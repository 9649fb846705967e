/* Blocks of the soak of threads: every use of them is ordered, and told to the cache. See thread_soak.h. */
#include "thread_soak.h"

#include "base/arith.h"

/* Most are small; now and then one is large. */
#define LEAST_BYTES 512U
#define SMALL_BYTES MIB
#define MOST_BYTES  (48 * MIB)

enum { LARGE_EVERY = 4 };

/* ---- Work ------------------------------------------------------------------------------------ */

/* A hand, a stream and a number: no two fills that can meet have the same. */
uint32_t hand_word(struct hand *hand, unsigned stream)
{
    return hand->number << 26 | stream << 20 | (++hand->sequence & 0xfffff);
}

void hand_fill(struct hand *hand, const struct crew_block *block, vmm_stream stream)
{
    hand_does(hand, "fill");
    crew_expect(hand->crew, "fill",
                vmm__driver_fill(hand->crew->driver, (uintptr_t)block->address, block->bytes,
                                 block->word, stream));
}

void hand_check(struct hand *hand, const struct crew_block *block, vmm_stream stream)
{
    hand_does(hand, "check");
    crew_expect(hand->crew, "check",
                vmm__driver_check(hand->crew->driver, (uintptr_t)block->address, block->bytes,
                                  block->word, stream));
}

static void block_read(struct hand *hand, const struct crew_block *block, unsigned stream)
{
    hand_check(hand, block, hand->crew->streams[stream]);
}

static void block_write(struct hand *hand, struct crew_block *block, unsigned stream)
{
    block->word = hand_word(hand, stream);
    hand_fill(hand, block, hand->crew->streams[stream]);
}

/* ---- Order ----------------------------------------------------------------------------------- */

/* Later work of one stream comes after what was submitted to another so far. */
static void stream_follows(struct hand *hand, unsigned later, unsigned earlier)
{
    struct crew *crew = hand->crew;
    if (later == earlier)
        return;
    hand_does(hand, "event record");
    crew_expect(crew, "event record",
                vmm__driver_event_record(crew->driver, hand->event, crew->streams[earlier]));
    hand_does(hand, "stream wait");
    crew_expect(crew, "stream wait",
                vmm__driver_stream_wait(crew->driver, crew->streams[later], hand->event));
}

static void users_followed(struct hand *hand, const struct crew_block *block, unsigned later)
{
    for (unsigned user = 0; user < hand->crew->settings.streams; user++) {
        if ((block->users >> user & 1) != 0)
            stream_follows(hand, later, user);
    }
}

/* ---- Operations ------------------------------------------------------------------------------ */

static unsigned stream_drawn(struct hand *hand)
{
    unsigned streams = hand->crew->settings.streams;
    if (!hand_dice(hand, 4))
        return hand->number % streams;
    return (unsigned)(random_next(&hand->random) % streams);
}

/* What a hand may have live: together they would like most of the limit. */
static uint64_t share_bytes(const struct hand *hand)
{
    const struct crew_settings *settings = &hand->crew->settings;
    return settings->limit_bytes / 16 * 15 / settings->threads;
}

static bool is_shortage(vmm_status status)
{
    return status == VMM_ERR_DEVICE_OOM || status == VMM_ERR_ADDRESS_SPACE;
}

static void block_forget(struct hand *hand, struct crew_block *block)
{
    hand->live_bytes -= block->bytes;
    *block = (struct crew_block){ .address = NULL };
}

/* When there was no memory, somebody has to give some back. */
static void largest_give(struct hand *hand)
{
    struct crew_block *largest = &hand->blocks[0];
    for (unsigned i = 1; i < HAND_BLOCKS; i++) {
        if (hand->blocks[i].bytes > largest->bytes)
            largest = &hand->blocks[i];
    }
    if (largest->address != NULL)
        hand_block_give(hand, largest);
}

void hand_block_take(struct hand *hand, struct crew_block *block)
{
    struct crew *crew = hand->crew;
    unsigned owner = stream_drawn(hand);
    uint64_t share = share_bytes(hand);
    uint64_t most = hand_dice(hand, LARGE_EVERY) ? MOST_BYTES : SMALL_BYTES;
    uint64_t bytes = hand_bytes_drawn(hand, LEAST_BYTES, vmm__min(most, share));
    if (hand->live_bytes + bytes > share) {
        largest_give(hand);
        return;
    }
    void *address;
    hand_does(hand, "vmm_alloc");
    vmm_status status = vmm_alloc(crew->cache, bytes, crew->streams[owner], &address);
    hand->sums.allocations++;
    if (is_shortage(status)) {
        hand->sums.refusals++;
        largest_give(hand);
        return;
    }
    crew_expect(crew, "vmm_alloc", status);
    if (status != VMM_OK)
        return;
    *block = (struct crew_block){ .address = address, .bytes = bytes, .owner = owner };
    hand->live_bytes += bytes;
    block_write(hand, block, owner);
}

void hand_block_give(struct hand *hand, struct crew_block *block)
{
    block_read(hand, block, block->owner);
    hand_does(hand, "vmm_free");
    crew_expect(hand->crew, "vmm_free", vmm_free(hand->crew->cache, block->address));
    block_forget(hand, block);
}

void hand_block_use(struct hand *hand, struct crew_block *block)
{
    struct crew *crew = hand->crew;
    unsigned user = stream_drawn(hand);
    if (user == block->owner)
        user = (user + 1) % crew->settings.streams;
    hand->sums.uses++;
    hand_does(hand, "vmm_use");
    crew_expect(crew, "vmm_use", vmm_use(crew->cache, block->address, crew->streams[user]));
    stream_follows(hand, user, block->owner);
    if (hand_dice(hand, 3)) {
        users_followed(hand, block, user);
        block_write(hand, block, user);
        stream_follows(hand, block->owner, user);
    } else {
        block_read(hand, block, user);
    }
    if (user != block->owner)
        block->users |= UINT64_C(1) << user;
}

void hand_block_touch(struct hand *hand, struct crew_block *block)
{
    if (hand_dice(hand, 4)) {
        users_followed(hand, block, block->owner);
        block_write(hand, block, block->owner);
    } else {
        block_read(hand, block, block->owner);
    }
}

/* ---- Passing --------------------------------------------------------------------------------- */

static void place_swap(struct hand *hand, struct crew_place *place, struct crew_block *block)
{
    (void)pthread_mutex_lock(&place->mutex);
    struct crew_block mine = *block;
    *block = place->block;
    place->block = mine;
    (void)pthread_mutex_unlock(&place->mutex);
    hand->live_bytes += block->bytes;
    hand->live_bytes -= mine.bytes;
}

/* What comes from another thread is looked at on a stream of this one. */
void hand_block_pass(struct hand *hand, struct crew_block *block)
{
    struct crew_place *place = &hand->crew->places[random_next(&hand->random) % CREW_PLACES];
    if (block->address != NULL)
        block_read(hand, block, block->owner);
    hand_does(hand, "pass");
    place_swap(hand, place, block);
    hand->sums.passes++;
    if (block->address != NULL)
        hand_block_use(hand, block);
}

void hand_blocks_leave(struct hand *hand)
{
    for (unsigned i = 0; i < HAND_BLOCKS; i++) {
        struct crew_block *block = &hand->blocks[i];
        for (unsigned tries = 0; tries < 8 && block->address != NULL; tries++)
            place_swap(hand, &hand->crew->places[random_next(&hand->random) % CREW_PLACES], block);
        if (block->address != NULL)
            hand_block_give(hand, block);
    }
}
