/* Lists and tables of lanes: see lanes.h. */
#include "lane/lanes.h"
#include "base/error.h"
#include "base/hostmem.h"

/* ---- Lists -------------------------------------------------------------------------------- */

static void list_leave(struct lane *lane)
{
    struct lane_list *list = lane->list;
    if (list == NULL)
        return;
    *(lane->list_prev != NULL ? &lane->list_prev->list_next : &list->first) = lane->list_next;
    *(lane->list_next != NULL ? &lane->list_next->list_prev : &list->last) = lane->list_prev;
    list->count--;
    lane->list = NULL;
}

/* Moves a lane to the end of a list, out of the list that it is in. */
static void list_move(struct lane *lane, struct lane_list *list)
{
    list_leave(lane);
    lane->list = list;
    lane->list_prev = list->last;
    lane->list_next = NULL;
    *(list->last != NULL ? &list->last->list_next : &list->first) = lane;
    list->last = lane;
    list->count++;
}

struct lane *vmm__lane_list_rotate(struct lane_list *list)
{
    struct lane *lane = list->first;
    if (lane == NULL)
        return NULL;
    list_move(lane, list);
    /* The next call turns to a lane that the processor has not seen for as many calls as there are lanes. */
    __builtin_prefetch(&list->first->list);
    return lane;
}

void vmm__lanes_vacate(struct lanes *lanes, struct lane *lane)
{
    if (!vmm__lane_has_ended(lane))
        list_leave(lane);
    else
        list_move(lane, lane->owner.is_pooled ? &lanes->vacant_pooled : &lanes->vacant_detached);
}

void vmm__lanes_touch(struct lanes *lanes, struct lane *lane)
{
    if (lane->list != &lanes->stocked)
        list_move(lane, &lanes->stocked);
}

void vmm__lanes_note(struct lanes *lanes, struct lane *lane)
{
    for (unsigned i = 0; i < LANES_RECENT; i++) {
        if (atomic_load_explicit(&lanes->recent[i], memory_order_relaxed) == lane)
            return;
    }
    uint64_t at = lanes->recent_count++ % LANES_RECENT;
    atomic_store_explicit(&lanes->recent[at], lane, memory_order_release);
}

/* ---- Stocked lanes -------------------------------------------------------------------------- */

void vmm__lanes_counters_flush(const struct lanes *lanes, const struct lane *held)
{
    for (struct lane *lane = lanes->stocked.first; lane != NULL; lane = lane->list_next) {
        vmm__lane_lock_beside(lane, held);
        vmm__lane_counters_flush(lane);
        vmm__lane_unlock_beside(lane, held);
    }
}

/* ---- The default pool ---------------------------------------------------------------------- */

static void table_enter(struct lane *lane)
{
    atomic_store_explicit(&lane->is_detached, false, memory_order_release);
    vmm__lane_table_enter(&lane->owner.pool->table, lane);
}

void vmm__lanes_show(struct lanes *lanes, struct lane *lane)
{
    table_enter(lane);
    vmm__lanes_vacate(lanes, lane);
}

void vmm__lanes_hide(struct lanes *lanes, struct lane *lane)
{
    atomic_store_explicit(&lane->is_detached, true, memory_order_release);
    if (lane->is_in_table)
        vmm__lane_table_leave(&lane->owner.pool->table, lane);
    if (lane->list != &lanes->stocked)
        vmm__lanes_vacate(lanes, lane);
}

/* ---- The table of a pool -------------------------------------------------------------------- */

static size_t table_bytes(const struct lane_table *table)
{
    return ((size_t)1 << table->bits) * sizeof *table->buckets;
}

vmm_status vmm__lane_table_init(struct lane_table *table, unsigned bits)
{
    table->bits = bits;
    table->buckets = vmm__host_table_alloc(table_bytes(table));
    if (table->buckets != NULL)
        return VMM_OK;
    return vmm__error(VMM_ERR_HOST_OOM, "pool: no host memory for the table of its streams");
}

void vmm__lane_table_fini(struct lane_table *table)
{
    vmm__host_table_free(table->buckets, table_bytes(table));
}

static _Atomic(struct lane *) *bucket_of(const struct lane_table *table, vmm_stream stream)
{
    uint64_t hash = (uint64_t)(uintptr_t)stream * UINT64_C(0x9E3779B97F4A7C15);
    return &table->buckets[hash >> (64 - table->bits)];
}

struct lane *vmm__lane_table_find(const struct lane_table *table, vmm_stream stream)
{
    struct lane *lane = atomic_load_explicit(bucket_of(table, stream), memory_order_acquire);
    while (lane != NULL && lane->owner.stream != stream)
        lane = atomic_load_explicit(&lane->next_in_bucket, memory_order_acquire);
    return lane;
}

void vmm__lane_table_enter(struct lane_table *table, struct lane *lane)
{
    _Atomic(struct lane *) *bucket = bucket_of(table, lane->owner.stream);
    struct lane *next = atomic_load_explicit(bucket, memory_order_relaxed);
    atomic_store_explicit(&lane->next_in_bucket, next, memory_order_release);
    atomic_store_explicit(bucket, lane, memory_order_release);
    lane->is_in_table = true;
}

void vmm__lane_table_leave(struct lane_table *table, struct lane *lane)
{
    _Atomic(struct lane *) *link = bucket_of(table, lane->owner.stream);
    struct lane *found = atomic_load_explicit(link, memory_order_relaxed);
    while (found != lane) {
        link = &found->next_in_bucket;
        found = atomic_load_explicit(link, memory_order_relaxed);
    }
    struct lane *next = atomic_load_explicit(&lane->next_in_bucket, memory_order_relaxed);
    atomic_store_explicit(link, next, memory_order_release);
    lane->is_in_table = false;
}

/* ---- All ---------------------------------------------------------------------------------- */

static void all_add(struct lanes *lanes, struct lane *lane)
{
    *(lanes->last != NULL ? &lanes->last->next : &lanes->first) = lane;
    lanes->last = lane;
}

void vmm__lanes_add_pooled(struct lanes *lanes, struct lane *lane)
{
    lane->owner.is_pooled = true;
    atomic_store_explicit(&lane->is_detached, true, memory_order_relaxed);
    lane->by_stream.key = (uint64_t)(uintptr_t)lane->owner.stream;
    vmm__map_add(&lanes->pooled_streams, &lane->by_stream);
    all_add(lanes, lane);
}

static struct lane *pooled_of(struct map_node *node)
{
    return node == NULL ? NULL : VMM_MAP_RECORD(node, struct lane, by_stream);
}

struct lane *vmm__lanes_pooled_first(const struct lanes *lanes, vmm_stream stream)
{
    return pooled_of(vmm__map_find(&lanes->pooled_streams, (uint64_t)(uintptr_t)stream));
}

struct lane *vmm__lanes_pooled_next(const struct lane *lane)
{
    return pooled_of(vmm__map_find_next(&lane->by_stream));
}

void vmm__lanes_pooled_give(struct lanes *lanes, struct lane *lane)
{
    vmm__map_remove(&lanes->pooled_streams, &lane->by_stream);
    lane->by_stream.key = (uint64_t)(uintptr_t)lane->owner.stream;
    vmm__map_add(&lanes->pooled_streams, &lane->by_stream);
    if (lane->list == &lanes->vacant_pooled)
        list_leave(lane);
}

void vmm__lanes_add(struct lanes *lanes, struct lane *lane)
{
    all_add(lanes, lane);
    table_enter(lane);
    vmm__lanes_vacate(lanes, lane);
}

vmm_status vmm__lanes_fini(struct lanes *lanes)
{
    vmm_status first = VMM_OK;
    vmm__map_clear(&lanes->pooled_streams, NULL);
    while (lanes->first != NULL) {
        struct lane *lane = lanes->first;
        lanes->first = lane->next;
        vmm_status status = vmm__lane_close(lane);
        first = first == VMM_OK ? status : first;
    }
    return first;
}
