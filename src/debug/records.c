/* Records of blocks: see records.h. */
#define _GNU_SOURCE
#include "debug/records.h"
#include "base/hostmem.h"

#include <sys/syscall.h>
#include <unistd.h>

void vmm__records_init(struct records *records)
{
    vmm__mutex_init(&records->lock);
}

static void list_free(struct record_list *list)
{
    while (list->oldest != NULL) {
        struct record *record = list->oldest;
        list->oldest = record->newer;
        vmm__host_free(record, sizeof *record);
    }
}

void vmm__records_fini(struct records *records)
{
    vmm__map_clear(&records->by_address, NULL);
    vmm__map_clear(&records->by_inner, NULL);
    list_free(&records->live);
    list_free(&records->kept);
    list_free(&records->freed);
    vmm__mutex_fini(&records->lock);
}

/* ---- Lists ---------------------------------------------------------------------------------- */

static void list_add(struct record_list *list, struct record *record)
{
    record->older = list->newest;
    record->newer = NULL;
    if (list->newest == NULL)
        list->oldest = record;
    else
        list->newest->newer = record;
    list->newest = record;
    list->count++;
    list->bytes += record->inner_bytes;
}

static void list_remove(struct record_list *list, struct record *record)
{
    if (record->older == NULL)
        list->oldest = record->newer;
    else
        record->older->newer = record->newer;
    if (record->newer == NULL)
        list->newest = record->older;
    else
        record->newer->older = record->older;
    list->count--;
    list->bytes -= record->inner_bytes;
}

/* ---- Adding and removing --------------------------------------------------------------------- */

struct record *vmm__record_take(struct records *records)
{
    vmm__mutex_lock(&records->lock);
    struct record *record = records->freed.oldest;
    if (records->freed.count < RECORDS_FREED_MOST)
        record = NULL;
    else
        list_remove(&records->freed, record);
    vmm__mutex_unlock(&records->lock);
    if (record == NULL)
        return vmm__host_alloc(1, sizeof *record);
    *record = (struct record){ .address = 0 };
    return record;
}

void vmm__record_drop(struct record *record)
{
    vmm__host_free(record, sizeof *record);
}

void vmm__records_call_site(struct records *records, struct call_site *call_site,
                            const void *caller)
{
    vmm__stack_take(&call_site->stack, caller);
    call_site->thread = (long)syscall(SYS_gettid);
    VMM_HOLD(&records->lock);
    call_site->operation = ++records->operations;
}

void vmm__records_add_live(struct records *records, struct record *record)
{
    VMM_HOLD(&records->lock);
    record->by_address.key = record->address;
    record->by_inner.key = record->inner;
    vmm__map_add(&records->by_address, &record->by_address);
    vmm__map_add(&records->by_inner, &record->by_inner);
    list_add(&records->live, record);
}

void vmm__records_add_kept(struct records *records, struct record *record)
{
    VMM_HOLD(&records->lock);
    record->is_kept = true;
    vmm__map_add(&records->by_inner, &record->by_inner);
    list_add(&records->kept, record);
}

void vmm__records_add_freed(struct records *records, struct record *record)
{
    struct record *spare = NULL;
    vmm__mutex_lock(&records->lock);
    record->is_kept = false;
    list_add(&records->freed, record);
    if (records->freed.count > RECORDS_FREED_MOST) {
        spare = records->freed.oldest;
        list_remove(&records->freed, spare);
    }
    vmm__mutex_unlock(&records->lock);
    vmm__host_free(spare, sizeof *spare);
}

struct record *vmm__records_find_locked(const struct records *records, uint64_t address)
{
    VMM_ASSERT_HELD(&records->lock);
    struct map_node *node = vmm__map_find(&records->by_address, address);
    return node == NULL ? NULL : VMM_MAP_RECORD(node, struct record, by_address);
}

struct record *vmm__records_find_inner_locked(const struct records *records, uint64_t inner)
{
    VMM_ASSERT_HELD(&records->lock);
    struct map_node *node = vmm__map_find(&records->by_inner, inner);
    return node == NULL ? NULL : VMM_MAP_RECORD(node, struct record, by_inner);
}

struct record *vmm__records_claim(struct records *records, uint64_t address)
{
    VMM_HOLD(&records->lock);
    struct record *record = vmm__records_find_locked(records, address);
    if (record != NULL) {
        vmm__map_remove(&records->by_address, &record->by_address);
        vmm__map_remove(&records->by_inner, &record->by_inner);
        list_remove(&records->live, record);
    }
    return record;
}

struct record *vmm__records_evict(struct records *records, uint64_t count, uint64_t bytes)
{
    VMM_HOLD(&records->lock);
    struct record_list *kept = &records->kept;
    struct record *record = kept->count > count || kept->bytes > bytes ? kept->oldest : NULL;
    if (record != NULL) {
        vmm__map_remove(&records->by_inner, &record->by_inner);
        list_remove(kept, record);
    }
    return record;
}

/* ---- Search for a wrong pointer -------------------------------------------------------------- */

/* Returns the newest record of a list whose block starts at the address (is_exact) or contains it. */
static const struct record *list_search(const struct record_list *list, uint64_t address,
                                        bool is_exact)
{
    const struct record *record = list->newest;
    while (record != NULL) {
        bool contains = address - record->inner < record->inner_bytes;
        if (is_exact ? record->address == address : contains)
            break;
        record = record->older;
    }
    return record;
}

bool vmm__records_suspect(struct records *records, uint64_t address, struct record *out)
{
    const struct {
        const struct record_list *list;
        bool is_exact;
    } order[] = { { &records->kept, true },
                  { &records->freed, true },
                  { &records->live, false },
                  { &records->kept, false },
                  { &records->freed, false } };
    const struct record *found = NULL;
    VMM_HOLD(&records->lock);
    for (size_t i = 0; i < sizeof order / sizeof *order && found == NULL; i++)
        found = list_search(order[i].list, address, order[i].is_exact);
    if (found != NULL)
        *out = *found;
    return found != NULL;
}
