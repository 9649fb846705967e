/* A model of what a cache's changes tell: see listener_support.h. */
#include "support/listener_support.h"

static struct block_ref *place_find(struct model *model, uint64_t address)
{
    for (unsigned i = 0; i < model->count; i++) {
        if (model->places[i].address == address)
            return &model->places[i];
    }
    return NULL;
}

static void place_mapped(struct model *model, const vmm_change *change, uint64_t address)
{
    if (place_find(model, address) != NULL || model->count == PLACES) {
        model->trouble = "memory came where some was, or too much";
        return;
    }
    model->places[model->count++] = (struct block_ref){ .address = address,
                                                        .stream = change->stream,
                                                        .pool = change->pool,
                                                        .is_small = change->is_small };
}

static void place_unmapped(struct model *model, const vmm_change *change, uint64_t address)
{
    struct block_ref *place = place_find(model, address);
    if (place == NULL || place->stream != change->stream || place->is_small != change->is_small) {
        model->trouble = "memory went that was not there, or another's";
        return;
    }
    *place = model->places[--model->count];
}

static void wait_changed(struct model *model, const vmm_change *change)
{
    unsigned i = 0;
    while (i < model->waits && model->waiting[i] != change->address)
        i++;
    bool is_there = i < model->waits;
    if (is_there == (change->kind == VMM_CHANGE_WAIT) || model->waits == WAITS) {
        model->trouble = "a block waits twice, or comes free that did not wait";
        return;
    }
    if (is_there)
        model->waiting[i] = model->waiting[--model->waits];
    else
        model->waiting[model->waits++] = change->address;
    model->waiting_bytes += is_there ? -change->bytes : change->bytes;
}

void change_note(void *context, const vmm_change *change)
{
    struct model *model = context;
    (void)pthread_mutex_lock(&model->lock);
    model->changes++;
    if (change->bytes == 0)
        model->trouble = "nothing changed";
    if (change->kind == VMM_CHANGE_WAIT || change->kind == VMM_CHANGE_FREE) {
        wait_changed(model, change);
    } else {
        if (change->bytes % model->granule_bytes != 0)
            model->trouble = "a part of a granule changed";
        for (uint64_t done = 0; done < change->bytes; done += model->granule_bytes) {
            if (change->kind == VMM_CHANGE_MAP)
                place_mapped(model, change, change->address + done);
            else
                place_unmapped(model, change, change->address + done);
        }
    }
    (void)pthread_mutex_unlock(&model->lock);
}

/* ---- Comparing --------------------------------------------------------------------------------- */

/* What memory is whose changes under the lock that a walk holds. A released graph pool's has no name left. */
static const char *place_compared(const struct block_ref *place, const vmm_item *item)
{
    if (place == NULL)
        return "the walk shows memory that was not told of";
    if (place->stream != item->stream || place->is_small != item->is_small)
        return "the walk shows memory that is another's";
    if (!pool_id_is(item->pool, place->pool.first, place->pool.second) &&
        !pool_id_is(item->pool, 0, 0))
        return "the walk shows memory of another graph pool";
    return NULL;
}

static int item_compared(void *context, const vmm_item *item)
{
    struct model *model = context;
    if (item->kind != VMM_ITEM_CHUNK || item->state == VMM_ITEM_WAITING)
        return 0;
    (void)pthread_mutex_lock(&model->lock);
    for (uint64_t done = 0; done < item->bytes; done += model->granule_bytes) {
        const char *trouble = place_compared(place_find(model, item->address + done), item);
        model->trouble = model->trouble == NULL ? trouble : model->trouble;
        model->seen++;
    }
    (void)pthread_mutex_unlock(&model->lock);
    return 0;
}

const char *model_compare(struct cache_test *test, struct model *model)
{
    model->seen = 0;
    if (vmm_walk(test->cache, item_compared, model) != VMM_OK)
        return "the walk failed";
    return model->trouble;
}

void model_verify(struct cache_test *test, struct model *model)
{
    const char *trouble = model_compare(test, model);
    if (trouble != NULL)
        fail_msg("%s", trouble);
    assert_int_equal(model->seen, model->count);
    struct occupancy_scan occupancy_scan = cache_scan(test);
    assert_int_equal(model->waits, occupancy_scan.waiting_blocks);
    assert_int_equal(model->waiting_bytes, occupancy_scan.waiting_bytes);
}

struct model *listen_begin(struct cache_test *test)
{
    static struct model model;
    model = (struct model){ .lock = PTHREAD_MUTEX_INITIALIZER };
    void *block = block_alloc(test, 1, 0); /* the least that the cache takes */
    model.granule_bytes = cache_stats(test).reserved_bytes.current;
    block_free(test, block);
    cache_trim_all(test);
    assert_ok(vmm_listen(test->cache, change_note, &model));
    return &model;
}

void listen_end(struct cache_test *test, struct model *model)
{
    work_verify(test);
    (void)cache_trim(test, 0);
    model_verify(test, model);
    uint64_t changes = model->changes;
    assert_ok(vmm_listen(test->cache, NULL, NULL));
    block_free(test, block_alloc(test, 8 * MIB, 0));
    assert_int_equal(model->changes, changes);
}
