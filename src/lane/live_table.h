/*
 * The live table of a cache: live blocks that any thread may free without a lane's lock. A block of a lane that several
 * threads use is listed when it is allocated, if its set has room, and leaves the table when it is freed for good,
 * pinned or used by another stream. "Block" here means a block or a slab object.
 *
 * A free claims the entry: one compare-and-swap from the address to the address with LIVE_CLAIMED. So of several
 * threads that free the same block one gets it; the others find no entry, and the block is not live for them. The
 * claimed entry then stands for the freed block, until it is either released, which makes the block live again, or
 * cleared.
 *
 * Owns: nothing. Invariants:
 *  1. an address is in the table at most once, and a block that is listed starts there;
 *  2. the rest of an entry changes only between its reservation for a block and its first release;
 *  3. an entry that is claimed belongs to the thread that claimed or reserved it, or to the holder of the lock of the
 *     magazine that keeps it: only that one releases or clears it.
 * May be called by: lane; api, to read. Locks: add, clear and remove expect the lock of the block's lane; claiming,
 * releasing and reading need none.
 */
#ifndef VMM_LANE_LIVE_TABLE_H
#define VMM_LANE_LIVE_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A set fills one cache line. With as many blocks as sets, 1 block in 270 finds its set full. */
enum { LIVE_SET_BITS = 12, LIVE_SETS = 1 << LIVE_SET_BITS, LIVE_WAYS = 4 };

/* No address of an arena has this bit, so a look-up never finds a claimed entry. */
#define LIVE_CLAIMED (UINT64_C(1) << 63)

struct live_entry {
    _Atomic uint64_t address; /* 0: unused */
    uint64_t requested_bytes; /* threads that do not own the entry read it, too */
};

struct live_table {
    struct live_entry entries[LIVE_SETS][LIVE_WAYS];
};

/* Lists a block; false if its set is full. */
bool vmm__live_table_add(struct live_table *table, uint64_t address, uint64_t requested_bytes);

/* Claims the entry of a listed block; NULL if the table has none. */
struct live_entry *vmm__live_table_claim(struct live_table *table, uint64_t address);

/* Claims and clears the entry of a listed block; false if the table has none. */
bool vmm__live_table_remove(struct live_table *table, uint64_t address);

/* Reads the size of a listed block that is not claimed. False if the table has none; also if another thread frees it
 * meanwhile. */
bool vmm__live_table_read(const struct live_table *table, uint64_t address,
                          uint64_t *requested_bytes);

/* Whether a block is listed and not claimed; and for checks, the address of an entry, 0 if it is claimed or unused. */
bool vmm__live_table_has(const struct live_table *table, uint64_t address);
uint64_t vmm__live_table_at(const struct live_table *table, unsigned entry);

/* The address of a claimed entry. */
static inline uint64_t vmm__live_entry_address(const struct live_entry *entry)
{
    return atomic_load_explicit(&entry->address, memory_order_relaxed) & ~LIVE_CLAIMED;
}

/* Makes the block of a claimed entry live again; returns its address. */
static inline uint64_t vmm__live_entry_release(struct live_entry *entry)
{
    uint64_t address = vmm__live_entry_address(entry);
    atomic_store_explicit(&entry->address, address, memory_order_release);
    return address;
}

/* Makes a claimed entry unused. */
static inline void vmm__live_entry_clear(struct live_entry *entry)
{
    atomic_store_explicit(&entry->address, 0, memory_order_release);
}

#endif
