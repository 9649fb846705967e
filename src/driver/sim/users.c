/*
 * Small sets of pieces of work, usually of one: the readers of an interval, the users of a mapping.
 *
 * Invariant: at most one epoch for each stream; a set in `many` never changes once created, so that the parts of a
 * split interval can share it.
 */
#include "driver/sim/internal.h"

#include "base/hostmem.h"

static size_t set_bytes(uint32_t count)
{
    return sizeof(struct sim_user_set) + count * sizeof(uint64_t);
}

void vmm__sim_users_clear(struct sim_users *users)
{
    struct sim_user_set *set = users->many;
    if (set != NULL && --set->references == 0)
        vmm__host_free(set, set_bytes(set->count));
    *users = (struct sim_users){ 0 };
}

struct sim_users vmm__sim_users_share(const struct sim_users *users)
{
    if (users->many != NULL)
        users->many->references++;
    return *users;
}

static const uint64_t *users_epochs(const struct sim_users *users, uint32_t *count)
{
    if (users->many != NULL) {
        *count = users->many->count;
        return users->many->epochs;
    }
    *count = users->one != 0;
    return &users->one;
}

uint64_t vmm__sim_users_uncovered(const struct sim_users *users, const uint64_t *clock)
{
    uint32_t count;
    const uint64_t *epochs = users_epochs(users, &count);
    for (uint32_t index = 0; index < count; index++) {
        if (!sim_epoch_covered(epochs[index], clock))
            return epochs[index];
    }
    return 0;
}

bool vmm__sim_users_contain(const struct sim_users *users, uint64_t epoch)
{
    uint32_t count;
    const uint64_t *epochs = users_epochs(users, &count);
    for (uint32_t index = 0; index < count; index++) {
        if (epochs[index] == epoch)
            return true;
    }
    return false;
}

bool vmm__sim_users_add(struct sim_users *users, const uint64_t *clock, uint64_t epoch)
{
    uint32_t count;
    const uint64_t *epochs = users_epochs(users, &count);
    uint64_t remaining[SIM_STREAMS + 1];
    uint32_t remaining_count = 0;
    for (uint32_t index = 0; index < count; index++) {
        bool same_stream = sim_epoch_stream(epochs[index]) == sim_epoch_stream(epoch);
        if (!same_stream && !sim_epoch_covered(epochs[index], clock))
            remaining[remaining_count++] = epochs[index];
    }
    if (remaining_count == 0) {
        vmm__sim_users_clear(users);
        users->one = epoch;
        return true;
    }
    remaining[remaining_count++] = epoch;
    struct sim_user_set *set = vmm__host_alloc(1, set_bytes(remaining_count));
    if (set == NULL)
        return false;
    set->references = 1;
    set->count = remaining_count;
    for (uint32_t index = 0; index < remaining_count; index++)
        set->epochs[index] = remaining[index];
    vmm__sim_users_clear(users);
    users->many = set;
    return true;
}
