/* The arena's addresses: see arena.h. */
#include "memory/arena.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"

/*
 * A new territory starts this far into the void that it is put in, or at half of the void where
 * that is less, so that the territory before it can go on growing in place. 2^46 bytes hold
 * hundreds of such rooms.
 */
enum { ROOM_GRANULES = 1 << 16 };

static uint64_t void_first(const struct arena *arena, const struct size_node *node)
{
    return (uint64_t)((const struct void_edge *)node - arena->edges);
}

/* The node of the void that has an edge at `granule`; NULL if none has. */
static struct size_node *void_at(const struct arena *arena, uint64_t granule)
{
    uint64_t first_plus_1 = arena->edges[granule].first_plus_1;
    return first_plus_1 == 0 ? NULL : &arena->edges[first_plus_1 - 1].node;
}

static void void_insert(struct arena *arena, uint64_t first, uint64_t count)
{
    struct void_edge *edge = &arena->edges[first];
    edge->node.size = count;
    edge->first_plus_1 = first + 1;
    arena->edges[first + count - 1].first_plus_1 = first + 1;
    vmm__size_index_insert(&arena->index, &edge->node);
}

static void void_remove(struct arena *arena, struct size_node *node)
{
    uint64_t first = void_first(arena, node);
    vmm__size_index_remove(&arena->index, node);
    arena->edges[first].first_plus_1 = 0;
    arena->edges[first + node->size - 1].first_plus_1 = 0;
}

/* The void that a granule lies in. A void's inner granules are searched for: that happens only to
 * the few huge voids that new territories are put into, and these come first. */
static struct size_node *void_around(const struct arena *arena, uint64_t granule)
{
    struct size_node *node = void_at(arena, granule);
    if (node != NULL)
        return node;
    node = vmm__size_index_largest(&arena->index);
    while (node != NULL && granule - void_first(arena, node) >= node->size)
        node = vmm__size_index_smaller(&arena->index, node);
    return node;
}

static vmm_status addresses_reserve(struct arena *arena, uint64_t bytes)
{
    uint64_t least_bytes = vmm__max(2 * arena->driver->total_bytes, arena->granule_bytes);
    uint64_t try_bytes = vmm__max(vmm__align_down(bytes, arena->granule_bytes), least_bytes);
    for (;;) {
        try_bytes = vmm__align_up(try_bytes, arena->granule_bytes);
        vmm_status status = vmm__driver_reserve(arena->driver, try_bytes, &arena->address);
        if (status == VMM_OK)
            arena->bytes = try_bytes;
        if (status != VMM_ERR_ADDRESS_SPACE || try_bytes / 2 < least_bytes)
            return status;
        try_bytes /= 2;
    }
}

/* What the driver refuses is tried once more. */
static vmm_status addresses_free(const struct arena *arena)
{
    vmm_status status = vmm__driver_address_free(arena->driver, arena->address, arena->bytes);
    if (status != VMM_OK)
        status = vmm__driver_address_free(arena->driver, arena->address, arena->bytes);
    return status;
}

vmm_status vmm__arena_init(struct arena *arena, struct driver *driver, uint64_t bytes)
{
    *arena = (struct arena){ .driver = driver, .granule_bytes = driver->granule_bytes };
    vmm__size_index_init(&arena->index);
    arena->granule_shift = vmm__log2(driver->granule_bytes);
    vmm_status status = addresses_reserve(arena, bytes);
    if (status != VMM_OK)
        return status;
    arena->granules = arena->bytes >> arena->granule_shift;
    arena->edges = vmm__host_table_alloc(arena->granules * sizeof *arena->edges);
    if (arena->edges == NULL) {
        status = vmm__error(VMM_ERR_HOST_OOM, "arena: no host memory for the table of voids");
        goto fail_table;
    }
    void_insert(arena, 0, arena->granules);
    arena->free_granules = arena->granules;
    return VMM_OK;

fail_table:
    (void)addresses_free(arena);
    return status;
}

vmm_status vmm__arena_fini(struct arena *arena)
{
    vmm__host_table_free(arena->edges, arena->granules * sizeof *arena->edges);
    return addresses_free(arena);
}

uint64_t vmm__arena_room_after(const struct arena *arena, uint64_t granule)
{
    const struct size_node *node = granule < arena->granules ? void_at(arena, granule) : NULL;
    return node == NULL ? 0 : void_first(arena, node) + node->size - granule;
}

uint64_t vmm__arena_room_before(const struct arena *arena, uint64_t granule)
{
    const struct size_node *node = granule > 0 ? void_at(arena, granule - 1) : NULL;
    return node == NULL ? 0 : granule - void_first(arena, node);
}

bool vmm__arena_void(const struct arena *arena, uint64_t granule, uint64_t *first, uint64_t *count)
{
    const struct size_node *node = granule < arena->granules ? void_around(arena, granule) : NULL;
    if (node == NULL)
        return false;
    *first = void_first(arena, node);
    *count = node->size;
    return true;
}

bool vmm__arena_find(const struct arena *arena, uint64_t count, uint64_t *granule)
{
    const struct size_node *node = vmm__size_index_largest(&arena->index);
    if (node == NULL || node->size < count)
        node = vmm__size_index_find(&arena->index, count);
    if (node == NULL)
        return false;
    uint64_t room = vmm__min(ROOM_GRANULES, (node->size - count) / 2);
    *granule = void_first(arena, node) + room;
    return true;
}

void vmm__arena_take(struct arena *arena, uint64_t granule, uint64_t count)
{
    struct size_node *node = void_around(arena, granule);
    uint64_t first = void_first(arena, node);
    uint64_t end = first + node->size;
    void_remove(arena, node);
    if (first < granule)
        void_insert(arena, first, granule - first);
    if (granule + count < end)
        void_insert(arena, granule + count, end - granule - count);
    arena->free_granules -= count;
}

void vmm__arena_give(struct arena *arena, uint64_t granule, uint64_t count)
{
    uint64_t first = granule;
    uint64_t end = granule + count;
    struct size_node *before = granule > 0 ? void_at(arena, granule - 1) : NULL;
    struct size_node *after = end < arena->granules ? void_at(arena, end) : NULL;
    if (before != NULL) {
        first = void_first(arena, before);
        void_remove(arena, before);
    }
    if (after != NULL) {
        end += after->size;
        void_remove(arena, after);
    }
    void_insert(arena, first, end - first);
    arena->free_granules += count;
}

void vmm__arena_fence(struct arena *arena, uint64_t granule)
{
    vmm__arena_take(arena, granule, 1);
    arena->edges[granule].node.size = ARENA_FENCE;
    arena->fences++;
}

/* The node of a granule that is taken keeps the size of a void that began there, which is not ARENA_FENCE. */
void vmm__arena_unfence(struct arena *arena, uint64_t granule)
{
    if (granule >= arena->granules || arena->edges[granule].node.size != ARENA_FENCE)
        return;
    arena->edges[granule].node.size = 0;
    vmm__arena_give(arena, granule, 1);
    arena->fences--;
}

uint64_t vmm__arena_next_taken(const struct arena *arena, uint64_t granule)
{
    return granule + vmm__arena_room_after(arena, granule);
}

static vmm_status void_check(const struct arena *arena, const struct size_node *node)
{
    uint64_t first = void_first(arena, node);
    uint64_t end = first + node->size;
    if (void_at(arena, first) != node || void_at(arena, end - 1) != node)
        return vmm__error(VMM_ERR_INTERNAL, "arena: invariant 2: a void lost its edges");
    if ((first > 0 && void_at(arena, first - 1) != NULL) ||
        (end < arena->granules && void_at(arena, end) != NULL))
        return vmm__error(VMM_ERR_INTERNAL, "arena: invariant 1: two voids touch");
    return VMM_OK;
}

vmm_status vmm__arena_check(const struct arena *arena)
{
    if (!vmm__size_index_check(&arena->index))
        return vmm__error(VMM_ERR_INTERNAL, "arena: invariant 3: the index of voids is broken");
    uint64_t sum = 0;
    for (struct size_node *node = vmm__size_index_largest(&arena->index); node != NULL;
         node = vmm__size_index_smaller(&arena->index, node)) {
        vmm_status status = void_check(arena, node);
        if (status != VMM_OK)
            return status;
        sum += node->size;
    }
    if (sum != arena->free_granules)
        return vmm__error(VMM_ERR_INTERNAL, "arena: invariant 4: voids do not add up");
    return VMM_OK;
}
