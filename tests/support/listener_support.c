/* A model of what a cache's changes tell: see listener_support.h. */
#include "support/listener_support.h"

/* The range that a change, or an item of a walk, describes. */
static struct owned_range range_changed(const vmm_change *change)
{
    return (struct owned_range){ .address = change->address,
                                 .end = change->address + change->bytes,
                                 .stream = change->stream,
                                 .pool = change->pool_id,
                                 .is_small = change->is_small,
                                 .is_view = change->is_view };
}

static struct owned_range range_walked(const vmm_item *item)
{
    return (struct owned_range){ .address = item->address,
                                 .end = item->address + item->bytes,
                                 .stream = item->stream,
                                 .pool = item->pool_id,
                                 .is_small = item->is_small,
                                 .is_view = item->is_view };
}

static void memory_changed(struct model *model, const vmm_change *change)
{
    struct owned_range range = range_changed(change);
    if (change->kind == VMM_CHANGE_MAP && !ranges_add(&model->mapped, &range))
        model->trouble = "memory came where some was";
    if (change->kind == VMM_CHANGE_UNMAP && !ranges_remove(&model->mapped, &range))
        model->trouble = "memory went that was not there, or another's";
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
    if (change->kind == VMM_CHANGE_WAIT || change->kind == VMM_CHANGE_FREE)
        wait_changed(model, change);
    else
        memory_changed(model, change);
    (void)pthread_mutex_unlock(&model->lock);
}

/* ---- Comparing --------------------------------------------------------------------------------- */

/* Who owns memory changes under the lock that a walk holds. */
static int item_compared(void *context, const vmm_item *item)
{
    struct model *model = context;
    if (item->kind != VMM_ITEM_CHUNK || item->state == VMM_ITEM_WAITING)
        return 0;
    struct owned_range range = range_walked(item);
    (void)pthread_mutex_lock(&model->lock);
    if (model->seen_bytes == 0)
        model->walked_bytes = ranges_bytes(&model->mapped);
    if (model->trouble == NULL && !ranges_contain(&model->mapped, &range))
        model->trouble = "the walk shows memory that was not told of, or another's";
    model->seen_bytes += item->bytes;
    (void)pthread_mutex_unlock(&model->lock);
    return 0;
}

const char *model_compare(struct cache_test *test, struct model *model)
{
    model->seen_bytes = 0;
    model->walked_bytes = 0;
    if (vmm_walk(test->cache, item_compared, model) != VMM_OK)
        return "the walk failed";
    if (model->seen_bytes != model->walked_bytes)
        return "the walk does not show all memory once";
    return model->trouble;
}

void model_verify(struct cache_test *test, struct model *model)
{
    const char *trouble = model_compare(test, model);
    if (trouble != NULL)
        fail_msg("%s", trouble);
    assert_int_equal(model->seen_bytes, ranges_bytes(&model->mapped));
    struct occupancy_scan occupancy_scan = cache_scan(test);
    assert_int_equal(model->waits, occupancy_scan.waiting_blocks);
    assert_int_equal(model->waiting_bytes, occupancy_scan.waiting_bytes);
}

struct model *listen_begin(struct cache_test *test)
{
    static struct model model;
    ranges_free(&model.mapped);
    model = (struct model){ .lock = PTHREAD_MUTEX_INITIALIZER };
    (void)cache_trim(test, 0);
    assert_int_equal(cache_stats(test).reserved_bytes.current, 0);
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
