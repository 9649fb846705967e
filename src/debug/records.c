/* Records of blocks: see records.h. */
#define _GNU_SOURCE
#include "debug/records.h"
#include "base/error.h"
#include "base/hostmem.h"

#include <sys/syscall.h>
#include <unistd.h>

enum { BUCKETS = 1 << 16, UNIT_BYTES = 512 };
#define TABLE_BYTES (BUCKETS * sizeof(struct record *))

static struct record **bucket_of(struct record **table, uint64_t address)
{
    uint64_t mixed = address / UNIT_BYTES * UINT64_C(0x9E3779B97F4A7C15);
    return &table[mixed >> 48 & (BUCKETS - 1)];
}

vmm_status vmm__records_init(struct records *records)
{
    records->by_address = vmm__host_table_alloc(TABLE_BYTES);
    records->by_inner = vmm__host_table_alloc(TABLE_BYTES);
    vmm__mutex_init(&records->lock);
    if (records->by_address != NULL && records->by_inner != NULL)
        return VMM_OK;
    vmm__records_fini(records);
    return vmm__error(VMM_ERR_HOST_OOM, "create: no host memory for records of blocks");
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
    list_free(&records->live);
    list_free(&records->kept);
    list_free(&records->freed);
    if (records->by_address != NULL)
        vmm__host_table_free(records->by_address, TABLE_BYTES);
    if (records->by_inner != NULL)
        vmm__host_table_free(records->by_inner, TABLE_BYTES);
    vmm__mutex_fini(&records->lock);
}

/* ---- Lists and tables ------------------------------------------------------------------------ */

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

static void inner_add(struct records *records, struct record *record)
{
    struct record **bucket = bucket_of(records->by_inner, record->inner);
    record->next_by_inner = *bucket;
    *bucket = record;
}

static void inner_remove(struct records *records, const struct record *record)
{
    struct record **link = bucket_of(records->by_inner, record->inner);
    while (*link != record)
        link = &(*link)->next_by_inner;
    *link = record->next_by_inner;
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
    vmm__mutex_lock(&records->lock);
    call_site->operation = ++records->operations;
    vmm__mutex_unlock(&records->lock);
}

void vmm__records_add_live(struct records *records, struct record *record)
{
    vmm__mutex_lock(&records->lock);
    struct record **bucket = bucket_of(records->by_address, record->address);
    record->next_by_address = *bucket;
    *bucket = record;
    inner_add(records, record);
    list_add(&records->live, record);
    vmm__mutex_unlock(&records->lock);
}

void vmm__records_add_kept(struct records *records, struct record *record)
{
    vmm__mutex_lock(&records->lock);
    record->is_kept = true;
    inner_add(records, record);
    list_add(&records->kept, record);
    vmm__mutex_unlock(&records->lock);
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
    struct record *record = *bucket_of(records->by_address, address);
    while (record != NULL && record->address != address)
        record = record->next_by_address;
    return record;
}

struct record *vmm__records_find_inner_locked(const struct records *records, uint64_t inner)
{
    VMM_ASSERT_HELD(&records->lock);
    struct record *record = *bucket_of(records->by_inner, inner);
    while (record != NULL && record->inner != inner)
        record = record->next_by_inner;
    return record;
}

struct record *vmm__records_claim(struct records *records, uint64_t address)
{
    vmm__mutex_lock(&records->lock);
    struct record **link = bucket_of(records->by_address, address);
    while (*link != NULL && (*link)->address != address)
        link = &(*link)->next_by_address;
    struct record *record = *link;
    if (record != NULL) {
        *link = record->next_by_address;
        inner_remove(records, record);
        list_remove(&records->live, record);
    }
    vmm__mutex_unlock(&records->lock);
    return record;
}

struct record *vmm__records_evict(struct records *records, uint64_t count, uint64_t bytes)
{
    vmm__mutex_lock(&records->lock);
    struct record_list *kept = &records->kept;
    struct record *record = kept->count > count || kept->bytes > bytes ? kept->oldest : NULL;
    if (record != NULL) {
        inner_remove(records, record);
        list_remove(kept, record);
    }
    vmm__mutex_unlock(&records->lock);
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
    vmm__mutex_lock(&records->lock);
    for (size_t i = 0; i < sizeof order / sizeof *order && found == NULL; i++)
        found = list_search(order[i].list, address, order[i].is_exact);
    if (found != NULL)
        *out = *found;
    vmm__mutex_unlock(&records->lock);
    return found != NULL;
}
