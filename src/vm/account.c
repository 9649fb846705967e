/* Accounts: what parts of a cache have reserved, and may reserve. See vm.h. */
#include "base/arith.h"
#include "base/error.h"
#include "vm/vm.h"

void vmm__account_add(struct vm *vm, struct account *account)
{
    account->next = vm->accounts;
    vm->accounts = account;
}

static void chunks_add(struct atomic_stat *reserved, struct atomic_stat *chunks, uint64_t bytes,
                       uint64_t count)
{
    vmm__stat_add(reserved, bytes);
    vmm__stat_add(chunks, count);
}

static void chunk_subtract(struct atomic_stat *reserved, struct atomic_stat *chunks, uint64_t bytes)
{
    vmm__stat_subtract(reserved, bytes);
    vmm__stat_subtract(chunks, 1);
}

void vmm__account_book(struct vm *vm, const struct chunk *chunk)
{
    uint64_t bytes = vmm__chunk_bytes(vm, chunk);
    if (!chunk->account->is_imported)
        chunks_add(&vm->reserved_bytes, &vm->chunks, bytes, 1);
    chunks_add(&chunk->account->reserved_bytes, &chunk->account->chunks, bytes, 1);
}

void vmm__account_unbook(struct vm *vm, const struct chunk *chunk)
{
    uint64_t bytes = vmm__chunk_bytes(vm, chunk);
    if (!chunk->account->is_imported)
        chunk_subtract(&vm->reserved_bytes, &vm->chunks, bytes);
    chunk_subtract(&chunk->account->reserved_bytes, &chunk->account->chunks, bytes);
}

static void chunks_inherit(struct vm *vm, const struct account *account, struct account *heir)
{
    for (uint32_t id = 1; id < vm->record_high; id++) {
        if (vm->records[id].state != CHUNK_UNUSED && vm->records[id].account == account)
            vm->records[id].account = heir;
    }
}

void vmm__account_remove(struct vm *vm, struct account *account, struct account *heir)
{
    struct account **link = &vm->accounts;
    while (*link != account)
        link = &(*link)->next;
    *link = account->next;
    if (heir == NULL)
        return;
    chunks_inherit(vm, account, heir);
    chunks_add(&heir->reserved_bytes, &heir->chunks, vmm__stat_now(&account->reserved_bytes),
               vmm__stat_now(&account->chunks));
    atomic_fetch_add_explicit(&heir->limbo_bytes, account->limbo_bytes, memory_order_relaxed);
    heir->asleep_bytes += account->asleep_bytes;
}

void vmm__account_move(struct vm *vm, uint64_t granule, uint64_t count, struct account *to)
{
    for (uint64_t at = granule; at < granule + count;) {
        struct chunk *chunk = vmm__vm_chunk(vm, at);
        uint64_t bytes = vmm__chunk_bytes(vm, chunk);
        at += chunk->granules;
        if (chunk->account == to)
            continue;
        chunk_subtract(&chunk->account->reserved_bytes, &chunk->account->chunks, bytes);
        chunks_add(&to->reserved_bytes, &to->chunks, bytes, 1);
        chunk->account = to;
    }
}

uint64_t vmm__vm_limit_bytes(const struct vm *vm)
{
    uint64_t total = vm->driver->total_bytes;
    return vm->limit_bytes != 0 ? vmm__min(total, vm->limit_bytes) : total;
}

/* More may be reserved than the limit allows, if the program has lowered it. */
static uint64_t short_bytes(uint64_t limit, uint64_t reserved, uint64_t bytes)
{
    uint64_t total;
    if (bytes == 0)
        return 0;
    if (!vmm__add_checked(reserved, bytes, &total))
        return UINT64_MAX;
    return total - vmm__min(total, limit);
}

uint64_t vmm__account_short_bytes(const struct account *account, uint64_t bytes)
{
    if (account->limit_bytes == 0)
        return 0;
    return short_bytes(account->limit_bytes, vmm__stat_now(&account->reserved_bytes), bytes);
}

uint64_t vmm__account_room_bytes(const struct account *account)
{
    uint64_t limit = account->limit_bytes;
    return limit == 0 ? UINT64_MAX
                      : limit - vmm__min(limit, vmm__stat_now(&account->reserved_bytes));
}

/* What other accounts have been promised and have not reserved. */
static uint64_t promised_bytes(const struct vm *vm, const struct account *account)
{
    uint64_t bytes = 0;
    for (const struct account *other = vm->accounts; other != NULL; other = other->next) {
        uint64_t least = other->least_bytes;
        if (other != account)
            bytes += least - vmm__min(least, vmm__stat_now(&other->reserved_bytes));
    }
    return bytes;
}

uint64_t vmm__vm_short_bytes(const struct vm *vm, const struct account *account, uint64_t bytes)
{
    uint64_t reserved = vmm__stat_now(&vm->reserved_bytes) + promised_bytes(vm, account);
    return short_bytes(vmm__vm_limit_bytes(vm), reserved, bytes);
}

/* Rejects a request beyond a limit before it takes all of the device. */
vmm_status vmm__account_check(const struct vm *vm, const struct account *account, uint64_t bytes)
{
    if (vmm__account_short_bytes(account, bytes) > 0)
        return vmm__error(
            VMM_ERR_DEVICE_OOM,
            "limit of %llu bytes of pool %s: %llu are reserved, %llu more were needed",
            (unsigned long long)account->limit_bytes, account->name,
            (unsigned long long)vmm__stat_now(&account->reserved_bytes), (unsigned long long)bytes);
    if (vmm__vm_short_bytes(vm, account, bytes) == 0)
        return VMM_OK;
    uint64_t taken_bytes = vmm__stat_now(&vm->reserved_bytes) + promised_bytes(vm, account);
    return vmm__error(
        VMM_ERR_DEVICE_OOM,
        "limit of %llu bytes: %llu are reserved, or promised to other pools; %llu more were needed",
        (unsigned long long)vmm__vm_limit_bytes(vm), (unsigned long long)taken_bytes,
        (unsigned long long)bytes);
}
