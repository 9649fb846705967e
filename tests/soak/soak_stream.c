/*
 * The soak's streams end, with work under way, and others come under their handles. See soak.h.
 *
 * What the work of a stream that ends did must come before later work on the same blocks: another stream, the
 * heir, is made to follow it first, and stands for it from then on.
 */
#include "soak.h"

/* The heir uses what the stream owned or used. */
static void blocks_inherited(struct soak *soak, unsigned stream, unsigned heir)
{
    for (unsigned i = 0; i < soak->settings.slots; i++) {
        struct soak_block *block = &soak->blocks[i];
        bool is_owner = block->owner == stream;
        if (block->address == NULL || (!is_owner && (block->users >> stream & 1) == 0))
            continue;
        soak_use_told(soak, block->address, heir);
        block->users = (block->users | 1U << heir) & ~(1U << stream);
        block->owner = is_owner ? heir : block->owner;
    }
}

static void launches_inherited(struct soak *soak, unsigned stream, unsigned heir)
{
    for (unsigned name = 0; name <= SOAK_NAMES; name++) {
        if (soak->launched[name] == stream)
            soak->launched[name] = heir;
    }
}

static void stream_destroyed(struct soak *soak, unsigned stream)
{
    soak->sums.ends++;
    soak_expect(soak, "stream destroy",
                vmm__driver_stream_destroy(soak->driver, soak->streams[stream]));
}

static void stream_created(struct soak *soak, unsigned stream)
{
    soak_expect(soak, "stream create",
                vmm__driver_stream_create(soak->driver, &soak->streams[stream]));
}

static void stream_ended(struct soak *soak, unsigned stream, unsigned heir)
{
    soak_stream_follows(soak, heir, stream);
    if (soak->lie != LIE_END)
        soak_expect(soak, "vmm_stream_end", vmm_stream_end(soak->cache, soak->streams[stream]));
    stream_destroyed(soak, stream);
    blocks_inherited(soak, stream, heir);
    launches_inherited(soak, stream, heir);
}

/* Destroyed without a word, once its work is done: who comes under its handle, later, is the same stream to the
 * cache. */
static void stream_left(struct soak *soak, unsigned stream)
{
    soak_expect(soak, "event record",
                soak->ops->event_record(soak->driver, soak->event, soak->streams[stream]));
    soak_expect(soak, "event wait", soak->ops->event_wait(soak->driver, soak->event));
    stream_destroyed(soak, stream);
    soak->gone = stream;
    soak->captured |= 1U << stream;
}

void soak_stream_renew(struct soak *soak)
{
    if (soak->gone == 0)
        return;
    soak->captured &= ~(1U << soak->gone);
    stream_created(soak, soak->gone);
    soak->gone = 0;
}

void soak_stream_turn(struct soak *soak)
{
    unsigned streams = soak->settings.streams;
    unsigned first = (unsigned)(random_next(&soak->random) % streams);
    unsigned second = (unsigned)(random_next(&soak->random) % streams);
    unsigned heir = (unsigned)(random_next(&soak->random) % streams);
    if (soak->gone != 0 && soak_dice(soak, 2)) {
        soak_stream_renew(soak);
        return;
    }
    if (first == 0 || soak_is_captured(soak, 1U << first | 1U << second | 1U << heir))
        return;
    if (soak->gone == 0 && soak_dice(soak, 4)) {
        stream_left(soak, first);
        return;
    }
    if (heir == first)
        return;
    stream_ended(soak, first, heir);
    if (second == 0 || second == first || second == heir) {
        stream_created(soak, first);
        return;
    }
    stream_ended(soak, second, heir); /* and they change their handles */
    stream_created(soak, first);
    stream_created(soak, second);
}
