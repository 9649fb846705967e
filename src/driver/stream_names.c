/* Names of created and destroyed streams: see stream_names.h. */
#include "driver/stream_names.h"

#include "base/error.h"
#include "base/hostmem.h"

/* Generated names count up from here, far from the names that tests invent. */
#define FIRST_NAME UINT64_C(0x51a0000000000000)

enum { ENTRIES_FIRST = 16 };

/*
 * Returns the entry of the name, or the free entry where it belongs. Growth keeps at least one
 * entry free.
 */
static struct stream_name *entry_at(struct stream_name *entries, uint64_t capacity, vmm_stream name)
{
    uint64_t hash = (uint64_t)(uintptr_t)name * UINT64_C(0x9E3779B97F4A7C15) >> 32;
    struct stream_name *entry = &entries[hash & (capacity - 1)];
    while (entry->is_used && entry->name != name)
        entry = entry + 1 == entries + capacity ? entries : entry + 1;
    return entry;
}

static const struct stream_name *entry_find(const struct stream_names *names, vmm_stream name)
{
    if (names->capacity == 0)
        return NULL;
    const struct stream_name *entry = entry_at(names->entries, names->capacity, name);
    return entry->is_used ? entry : NULL;
}

static bool entries_grow(struct stream_names *names)
{
    uint64_t capacity = names->capacity == 0 ? ENTRIES_FIRST : names->capacity * 2;
    struct stream_name *entries = vmm__host_alloc(capacity, sizeof *entries);
    if (entries == NULL)
        return false;
    for (uint64_t i = 0; i < names->capacity; i++) {
        if (names->entries[i].is_used)
            *entry_at(entries, capacity, names->entries[i].name) = names->entries[i];
    }
    vmm__host_free(names->entries, names->capacity * sizeof *entries);
    names->entries = entries;
    names->capacity = capacity;
    return true;
}

static bool name_set(struct stream_names *names, vmm_stream name, bool is_stale)
{
    if (names->count * 2 >= names->capacity && !entries_grow(names))
        return false;
    struct stream_name *entry = entry_at(names->entries, names->capacity, name);
    names->count += entry->is_used ? 0 : 1;
    *entry = (struct stream_name){ .name = name, .is_used = true, .is_stale = is_stale };
    return true;
}

vmm_stream vmm__stream_names_take(struct stream_names *names)
{
    if (names->destroyed_count == 0)
        return (vmm_stream)(uintptr_t)(FIRST_NAME + ++names->generated);
    vmm_stream name = names->destroyed[--names->destroyed_count];
    entry_at(names->entries, names->capacity, name)->is_stale = false;
    return name;
}

bool vmm__stream_names_note(struct stream_names *names, vmm_stream name)
{
    return name_set(names, name, false);
}

bool vmm__stream_names_has(const struct stream_names *names, vmm_stream name)
{
    const struct stream_name *entry = entry_find(names, name);
    return entry != NULL && !entry->is_stale;
}

bool vmm__stream_names_drop(struct stream_names *names, vmm_stream name)
{
    if (names->destroyed_count == names->destroyed_capacity) {
        uint32_t capacity = names->destroyed_capacity == 0 ? 8 : names->destroyed_capacity * 2;
        vmm_stream *destroyed =
            vmm__host_resize(names->destroyed, names->destroyed_capacity * sizeof *destroyed,
                             capacity * sizeof *destroyed);
        if (destroyed == NULL)
            return false;
        names->destroyed = destroyed;
        names->destroyed_capacity = capacity;
    }
    if (!name_set(names, name, true))
        return false;
    names->destroyed[names->destroyed_count++] = name;
    return true;
}

vmm_status vmm__stream_names_check(const struct stream_names *names, const char *call,
                                   vmm_stream name)
{
    const struct stream_name *entry = entry_find(names, name);
    if (entry != NULL && entry->is_stale)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "%s: stream %p was destroyed", call, name);
    return VMM_OK;
}

void vmm__stream_names_fini(struct stream_names *names)
{
    vmm__host_free(names->entries, names->capacity * sizeof *names->entries);
    vmm__host_free(names->destroyed, names->destroyed_capacity * sizeof *names->destroyed);
}
