/* The arena: see arena.h. */
#include "vm/arena.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"

/*
 * A new extent starts this far into its gap, or in the middle of a smaller gap, so that the
 * extent before it can grow in place. 2^46 bytes hold hundreds of such distances.
 */
enum { ROOM_GRANULES = 1 << 16 };

/* Granules that a further reservation leaves unused at either end. */
enum { UNUSED_GRANULES = 1 };

/*
 * The window has twice as many addresses as may be reserved, because other reservations of the
 * process take part of it; at least 1 TiB and at most the addresses of a process.
 */
enum { WINDOW_LIMITS = 2 };
#define WINDOW_LEAST_BYTES (UINT64_C(1) << 40)
#define ADDRESSES_MOST     (UINT64_C(1) << 47)

static uint64_t gap_first(const struct arena *arena, const struct size_node *node)
{
    return (uint64_t)((const struct gap_edge *)node - arena->edges);
}

/* The node of the gap that begins or ends at `granule`; NULL if none does. */
static struct size_node *gap_at(const struct arena *arena, uint64_t granule)
{
    uint64_t first_plus_1 = arena->edges[granule].first_plus_1;
    return first_plus_1 == 0 ? NULL : &arena->edges[first_plus_1 - 1].node;
}

static void gap_insert(struct arena *arena, uint64_t first, uint64_t count)
{
    struct gap_edge *edge = &arena->edges[first];
    edge->node.size = count;
    edge->first_plus_1 = first + 1;
    arena->edges[first + count - 1].first_plus_1 = first + 1;
    vmm__size_index_insert(&arena->index, &edge->node);
}

static void gap_remove(struct arena *arena, struct size_node *node)
{
    uint64_t first = gap_first(arena, node);
    vmm__size_index_remove(&arena->index, node);
    arena->edges[first].first_plus_1 = 0;
    arena->edges[first + node->size - 1].first_plus_1 = 0;
}

/* The gap that contains a granule. Searches the index for an inner granule. That happens only for
 * the few huge gaps in which new extents start, and those come first. */
static struct size_node *gap_around(const struct arena *arena, uint64_t granule)
{
    struct size_node *node = gap_at(arena, granule);
    if (node != NULL)
        return node;
    node = vmm__size_index_largest(&arena->index);
    while (node != NULL && granule - gap_first(arena, node) >= node->size)
        node = vmm__size_index_smaller(&arena->index, node);
    return node;
}

/* ---- Reservations ---------------------------------------------------------------------------- */

/* If the driver refuses, tries once more. */
static vmm_status addresses_free(const struct arena *arena, uint64_t address, uint64_t bytes)
{
    vmm_status status = vmm__driver_address_free(arena->driver, address, bytes);
    if (status != VMM_OK)
        status = vmm__driver_address_free(arena->driver, address, bytes);
    return status;
}

static vmm_status reservations_free(const struct arena *arena)
{
    vmm_status first = VMM_OK;
    for (uint32_t i = 0; i < arena->reservation_count; i++) {
        const struct reservation *at = &arena->reservations[i];
        vmm_status status = addresses_free(arena, at->address, at->bytes);
        first = first == VMM_OK ? status : first;
    }
    return first;
}

/* Adds a reservation, without `unused` granules at either end. */
static void reservation_add(struct arena *arena, uint64_t address, uint64_t bytes, uint64_t unused)
{
    uint64_t first = vmm__arena_granule(arena, address) + unused;
    uint64_t end = vmm__arena_granule(arena, address + bytes) - unused;
    arena->reservations[arena->reservation_count++] =
        (struct reservation){ .address = address, .bytes = bytes, .first = first, .end = end };
    uint64_t low = arena->reserved_bytes == 0 ? address : vmm__min(arena->low, address);
    uint64_t high = vmm__max(arena->low + arena->span_bytes, address + bytes);
    arena->low = low;
    arena->span_bytes = high - low;
    arena->reserved_bytes += bytes;
    arena->usable_granules += end - first;
    vmm__arena_give(arena, first, end - first);
}

/* Reports how many addresses the driver refused, followed by the driver's own error line. */
static vmm_status refusal_report(const struct arena *arena, uint64_t bytes)
{
    return vmm__error(VMM_ERR_ADDRESS_SPACE,
                      "arena: the driver refused %llu bytes of addresses; %llu are reserved, of "
                      "arena_bytes = %llu: %s",
                      (unsigned long long)bytes, (unsigned long long)arena->reserved_bytes,
                      (unsigned long long)arena->limit_bytes, vmm_last_error());
}

static vmm_status reserve_first(struct arena *arena, uint64_t *address, uint64_t *bytes)
{
    uint64_t device_bytes = vmm__align_up(arena->driver->total_bytes, arena->granule_bytes);
    uint64_t least_bytes = vmm__min(device_bytes, arena->limit_bytes);
    for (;;) {
        vmm_status status = vmm__driver_reserve(arena->driver, *bytes, 0, address);
        if (status != VMM_ERR_ADDRESS_SPACE)
            return status;
        uint64_t half_bytes = vmm__align_up(*bytes / 2, arena->granule_bytes);
        if (half_bytes < least_bytes || half_bytes == *bytes)
            return refusal_report(arena, *bytes);
        *bytes = half_bytes;
    }
}

/* Puts the first reservation in the middle of its window: the driver may choose addresses on
 * either side. */
static void window_choose(struct arena *arena, uint64_t address, uint64_t bytes)
{
    arena->address = address;
    arena->bytes = bytes;
    if (bytes < arena->limit_bytes) {
        uint64_t least_bytes = vmm__max(WINDOW_LIMITS * arena->limit_bytes, WINDOW_LEAST_BYTES);
        arena->bytes = vmm__align_up(vmm__min(least_bytes, ADDRESSES_MOST), arena->granule_bytes);
        uint64_t before = vmm__align_down((arena->bytes - bytes) / 2, arena->granule_bytes);
        arena->address = address - vmm__min(before, address);
    }
    arena->granules = arena->bytes >> arena->granule_shift;
}

vmm_status vmm__arena_init(struct arena *arena, struct driver *driver, uint64_t first_bytes,
                           uint64_t limit_bytes)
{
    *arena = (struct arena){ .driver = driver, .granule_bytes = driver->granule_bytes };
    vmm__size_index_init(&arena->index, 1);
    arena->granule_shift = vmm__log2(driver->granule_bytes);
    arena->limit_bytes = vmm__align_up(vmm__min(limit_bytes, ADDRESSES_MOST), arena->granule_bytes);
    uint64_t address;
    uint64_t bytes = vmm__align_up(vmm__min(first_bytes, arena->limit_bytes), arena->granule_bytes);
    vmm_status status = reserve_first(arena, &address, &bytes);
    if (status != VMM_OK)
        return status;
    window_choose(arena, address, bytes);
    arena->edges = vmm__host_table_alloc(arena->granules * sizeof *arena->edges);
    if (arena->edges == NULL) {
        status = vmm__error(VMM_ERR_HOST_OOM, "arena: no host memory for the table of gaps");
        goto fail_table;
    }
    if (!vmm__size_index_open(&arena->index, arena->granules)) {
        status = vmm__error(VMM_ERR_HOST_OOM, "arena: no host memory for the index of gaps");
        goto fail_index;
    }
    reservation_add(arena, address, bytes, 0);
    return VMM_OK;

fail_index:
    vmm__host_table_free(arena->edges, arena->granules * sizeof *arena->edges);
fail_table:
    (void)addresses_free(arena, address, bytes);
    return status;
}

vmm_status vmm__arena_fini(struct arena *arena)
{
    vmm__size_index_close(&arena->index);
    vmm__host_table_free(arena->edges, arena->granules * sizeof *arena->edges);
    return reservations_free(arena);
}

/* ---- Further reservations -------------------------------------------------------------------- */

static bool window_holds(const struct arena *arena, uint64_t address, uint64_t bytes)
{
    return address >= arena->address && address - arena->address <= arena->bytes - bytes;
}

/* Makes one attempt. Addresses outside the window are freed again. */
static vmm_status reserve_at(const struct arena *arena, uint64_t bytes, uint64_t hint,
                             uint64_t *address)
{
    uint64_t made;
    vmm_status status = vmm__driver_reserve(arena->driver, bytes, hint, &made);
    if (status != VMM_OK)
        return status;
    if (window_holds(arena, made, bytes)) {
        *address = made;
        return VMM_OK;
    }
    (void)addresses_free(arena, made, bytes);
    return vmm__error(VMM_ERR_ADDRESS_SPACE,
                      "0x%llx is too far from the first reservation at 0x%llx",
                      (unsigned long long)made, (unsigned long long)arena->reservations[0].address);
}

/* Tries addresses after all reservations, before them, and wherever the driver chooses. */
static vmm_status reserve_further(const struct arena *arena, uint64_t bytes, uint64_t *address)
{
    const uint64_t hints[] = { arena->low + arena->span_bytes,
                               arena->low > bytes ? arena->low - bytes : 0, 0 };
    vmm_status status = VMM_ERR_ADDRESS_SPACE;
    for (size_t i = 0; i < sizeof hints / sizeof hints[0] && status == VMM_ERR_ADDRESS_SPACE; i++)
        status = reserve_at(arena, bytes, hints[i], address);
    return status;
}

static vmm_status extension_check(const struct arena *arena, uint64_t need_bytes)
{
    if (arena->reservation_count == ARENA_RESERVATIONS ||
        need_bytes > arena->limit_bytes - arena->reserved_bytes)
        return vmm__error(VMM_ERR_ADDRESS_SPACE,
                          "arena: %llu bytes of addresses are reserved and %llu more were needed; "
                          "arena_bytes = %llu does not allow it",
                          (unsigned long long)arena->reserved_bytes, (unsigned long long)need_bytes,
                          (unsigned long long)arena->limit_bytes);
    return VMM_OK;
}

/* `most_bytes`: ERR_DEVICE_OOM for more. */
static vmm_status arena_extend(struct arena *arena, uint64_t bytes, uint64_t most_bytes)
{
    uint64_t need_bytes = vmm__align_up(bytes, arena->granule_bytes) +
                          2 * (1 + UNUSED_GRANULES) * arena->granule_bytes;
    vmm_status status = extension_check(arena, need_bytes);
    if (status == VMM_OK && bytes > most_bytes)
        status = vmm__error(VMM_ERR_DEVICE_OOM, "arena: %llu bytes are more than the device has",
                            (unsigned long long)bytes);
    if (status != VMM_OK)
        return status;
    uint64_t left_bytes = arena->limit_bytes - arena->reserved_bytes;
    uint64_t try_bytes = vmm__min(vmm__max(need_bytes, arena->reserved_bytes), left_bytes);
    uint64_t address = 0;
    for (;;) {
        status = reserve_further(arena, try_bytes, &address);
        if (status == VMM_OK)
            reservation_add(arena, address, try_bytes, UNUSED_GRANULES);
        if (status != VMM_ERR_ADDRESS_SPACE)
            return status;
        if (try_bytes == need_bytes)
            return refusal_report(arena, need_bytes);
        try_bytes = vmm__max(vmm__align_up(try_bytes / 2, arena->granule_bytes), need_bytes);
    }
}

vmm_status vmm__arena_extend(struct arena *arena, uint64_t bytes)
{
    return arena_extend(arena, bytes, arena->driver->total_bytes);
}

/* ---- Gaps ------------------------------------------------------------------------------------ */

uint64_t vmm__arena_room_after(const struct arena *arena, uint64_t granule)
{
    const struct size_node *node = granule < arena->granules ? gap_at(arena, granule) : NULL;
    return node == NULL ? 0 : gap_first(arena, node) + node->size - granule;
}

uint64_t vmm__arena_room_before(const struct arena *arena, uint64_t granule)
{
    const struct size_node *node = granule > 0 ? gap_at(arena, granule - 1) : NULL;
    return node == NULL ? 0 : granule - gap_first(arena, node);
}

bool vmm__arena_gap(const struct arena *arena, uint64_t granule, uint64_t *first, uint64_t *count)
{
    const struct size_node *node = granule < arena->granules ? gap_around(arena, granule) : NULL;
    if (node == NULL)
        return false;
    *first = gap_first(arena, node);
    *count = node->size;
    return true;
}

bool vmm__arena_find(const struct arena *arena, uint64_t count, uint64_t *granule)
{
    const struct size_node *node = vmm__size_index_largest(&arena->index);
    if (node == NULL || node->size < count)
        node = vmm__size_index_find(&arena->index, count, SEARCH_WHOLE);
    if (node == NULL)
        return false;
    uint64_t room = vmm__min(ROOM_GRANULES, (node->size - count) / 2);
    *granule = gap_first(arena, node) + room;
    return true;
}

vmm_status vmm__arena_find_or_extend(struct arena *arena, uint64_t count, uint64_t *granule)
{
    vmm_status status = VMM_OK;
    if (!vmm__arena_find(arena, count, granule)) {
        status = vmm__arena_extend(arena, count << arena->granule_shift);
        if (status == VMM_OK)
            (void)vmm__arena_find(arena, count, granule);
    }
    return status;
}

/* Uses the smallest gap that holds the row with `room` granules on both sides, and its high end: heaps grow upward. */
static bool row_find(const struct arena *arena, uint64_t count, uint64_t room, uint64_t *granule)
{
    const struct size_node *node =
        vmm__size_index_find(&arena->index, count + 2 * room, SEARCH_WHOLE);
    if (node == NULL)
        return false;
    *granule = gap_first(arena, node) + node->size - room - count;
    return true;
}

vmm_status vmm__arena_find_row(struct arena *arena, uint64_t count, uint64_t *granule)
{
    if (row_find(arena, count, count, granule) || row_find(arena, count, 1, granule))
        return VMM_OK;
    vmm_status status = arena_extend(arena, (count + 2) << arena->granule_shift, UINT64_MAX);
    if (status == VMM_OK && !row_find(arena, count, 1, granule))
        status = VMM_ERR_ADDRESS_SPACE;
    return status;
}

void vmm__arena_take(struct arena *arena, uint64_t granule, uint64_t count)
{
    struct size_node *node = gap_around(arena, granule);
    uint64_t first = gap_first(arena, node);
    uint64_t end = first + node->size;
    gap_remove(arena, node);
    if (first < granule)
        gap_insert(arena, first, granule - first);
    if (granule + count < end)
        gap_insert(arena, granule + count, end - granule - count);
    arena->free_granules -= count;
}

void vmm__arena_give(struct arena *arena, uint64_t granule, uint64_t count)
{
    uint64_t first = granule;
    uint64_t end = granule + count;
    struct size_node *before = granule > 0 ? gap_at(arena, granule - 1) : NULL;
    struct size_node *after = end < arena->granules ? gap_at(arena, end) : NULL;
    if (before != NULL) {
        first = gap_first(arena, before);
        gap_remove(arena, before);
    }
    if (after != NULL) {
        end += after->size;
        gap_remove(arena, after);
    }
    gap_insert(arena, first, end - first);
    arena->free_granules += count;
}

void vmm__arena_guard_page_put(struct arena *arena, uint64_t granule)
{
    vmm__arena_take(arena, granule, 1);
    arena->edges[granule].node.size = ARENA_GUARD_PAGE;
    arena->guard_pages++;
}

/* The node of an ordinary taken granule holds the stale size of a gap, which is never
 * ARENA_GUARD_PAGE. */
void vmm__arena_guard_page_take(struct arena *arena, uint64_t granule)
{
    if (granule >= arena->granules || arena->edges[granule].node.size != ARENA_GUARD_PAGE)
        return;
    arena->edges[granule].node.size = 0;
    vmm__arena_give(arena, granule, 1);
    arena->guard_pages--;
}

/* The first usable granule at or after `granule`, and the end of its reservation. */
static uint64_t reserved_next(const struct arena *arena, uint64_t granule, uint64_t *end)
{
    uint64_t next = arena->granules;
    for (uint32_t i = 0; i < arena->reservation_count; i++) {
        const struct reservation *at = &arena->reservations[i];
        uint64_t first = vmm__max(at->first, granule);
        if (first < at->end && first < next) {
            next = first;
            *end = at->end;
        }
    }
    return next;
}

uint64_t vmm__arena_next_taken(const struct arena *arena, uint64_t granule)
{
    for (;;) {
        uint64_t end = arena->granules;
        uint64_t at = reserved_next(arena, granule, &end);
        at += vmm__arena_room_after(arena, at);
        if (at < end || at == arena->granules)
            return at;
        granule = end;
    }
}

static vmm_status gap_check(const struct arena *arena, const struct size_node *node)
{
    uint64_t first = gap_first(arena, node);
    uint64_t end = first + node->size;
    if (gap_at(arena, first) != node || gap_at(arena, end - 1) != node)
        return vmm__error(VMM_ERR_INTERNAL, "arena: invariant 2: a gap lost its edges");
    if ((first > 0 && gap_at(arena, first - 1) != NULL) ||
        (end < arena->granules && gap_at(arena, end) != NULL))
        return vmm__error(VMM_ERR_INTERNAL, "arena: invariant 1: two gaps touch");
    return VMM_OK;
}

vmm_status vmm__arena_check(const struct arena *arena)
{
    if (!vmm__size_index_check(&arena->index))
        return vmm__error(VMM_ERR_INTERNAL, "arena: invariant 3: the index of gaps is broken");
    uint64_t sum = 0;
    for (struct size_node *node = vmm__size_index_largest(&arena->index); node != NULL;
         node = vmm__size_index_smaller(&arena->index, node)) {
        vmm_status status = gap_check(arena, node);
        if (status != VMM_OK)
            return status;
        sum += node->size;
    }
    if (sum != arena->free_granules)
        return vmm__error(VMM_ERR_INTERNAL, "arena: invariant 4: gaps do not add up");
    return VMM_OK;
}
