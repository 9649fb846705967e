/* Accounts: what parts of a cache have reserved, and may reserve. See vm.h. */
#include "base/arith.h"
#include "base/error.h"
#include "vm/vm.h"

/* What an account has been promised and has not reserved. */
static uint64_t promise_of(const struct account *account)
{
    uint64_t least = account->least_bytes;
    return least - vmm__min(least, vmm__stat_now(&account->reserved_bytes));
}

void vmm__account_add(struct vm *vm, struct account *account)
{
    account->next = vm->accounts;
    account->link = &vm->accounts;
    if (account->next != NULL)
        account->next->link = &account->next;
    vm->accounts = account;
    vm->promised_bytes += promise_of(account);
}

void vmm__account_promise(struct vm *vm, struct account *account, uint64_t least_bytes)
{
    vm->promised_bytes -= promise_of(account);
    account->least_bytes = least_bytes;
    vm->promised_bytes += promise_of(account);
}

/* ---- Chunks of an account --------------------------------------------------------------------- */

void vmm__account_enter(struct vm *vm, struct chunk *chunk, struct account *account)
{
    uint32_t id = vmm__chunk_id(vm, chunk);
    chunk->account = account;
    chunk->older = account->newest;
    chunk->newer = 0;
    if (chunk->older != 0)
        vm->records[chunk->older].newer = id;
    account->newest = id;
}

void vmm__account_leave(struct vm *vm, const struct chunk *chunk)
{
    if (chunk->newer != 0)
        vm->records[chunk->newer].older = chunk->older;
    else
        chunk->account->newest = chunk->older;
    if (chunk->older != 0)
        vm->records[chunk->older].newer = chunk->newer;
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

static void account_book(struct vm *vm, struct account *account, uint64_t bytes, uint64_t count)
{
    vm->promised_bytes -= promise_of(account);
    chunks_add(&account->reserved_bytes, &account->chunks, bytes, count);
    vm->promised_bytes += promise_of(account);
}

static void account_unbook(struct vm *vm, struct account *account, uint64_t bytes)
{
    vm->promised_bytes -= promise_of(account);
    chunk_subtract(&account->reserved_bytes, &account->chunks, bytes);
    vm->promised_bytes += promise_of(account);
}

void vmm__account_book(struct vm *vm, const struct chunk *chunk)
{
    uint64_t bytes = vmm__chunk_bytes(vm, chunk);
    if (!chunk->account->is_imported)
        chunks_add(&vm->reserved_bytes, &vm->chunks, bytes, 1);
    account_book(vm, chunk->account, bytes, 1);
}

void vmm__account_unbook(struct vm *vm, const struct chunk *chunk)
{
    uint64_t bytes = vmm__chunk_bytes(vm, chunk);
    if (!chunk->account->is_imported)
        chunk_subtract(&vm->reserved_bytes, &vm->chunks, bytes);
    account_unbook(vm, chunk->account, bytes);
}

static void chunks_inherit(struct vm *vm, const struct account *account, struct account *heir)
{
    while (account->newest != 0) {
        struct chunk *chunk = &vm->records[account->newest];
        vmm__account_leave(vm, chunk);
        vmm__account_enter(vm, chunk, heir);
    }
}

void vmm__account_remove(struct vm *vm, struct account *account, struct account *heir)
{
    *account->link = account->next;
    if (account->next != NULL)
        account->next->link = account->link;
    vm->promised_bytes -= promise_of(account);
    if (heir == NULL)
        return;
    chunks_inherit(vm, account, heir);
    account_book(vm, heir, vmm__stat_now(&account->reserved_bytes),
                 vmm__stat_now(&account->chunks));
    atomic_fetch_add_explicit(&heir->counts.limbo_bytes, account->counts.limbo_bytes,
                              memory_order_relaxed);
    heir->counts.asleep_bytes += account->counts.asleep_bytes;
}

void vmm__account_move(struct vm *vm, uint64_t granule, uint64_t count, struct account *to)
{
    for (uint64_t at = granule; at < granule + count;) {
        struct chunk *chunk = vmm__vm_chunk(vm, at);
        uint64_t bytes = vmm__chunk_bytes(vm, chunk);
        at += chunk->granules;
        if (chunk->account == to)
            continue;
        account_unbook(vm, chunk->account, bytes);
        account_book(vm, to, bytes, 1);
        vmm__account_leave(vm, chunk);
        vmm__account_enter(vm, chunk, to);
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
    return vm->promised_bytes - promise_of(account);
}

uint64_t vmm__vm_short_bytes(const struct vm *vm, const struct account *account, uint64_t bytes)
{
    uint64_t reserved = vmm__stat_now(&vm->reserved_bytes) + promised_bytes(vm, account);
    return short_bytes(vmm__vm_limit_bytes(vm), reserved, bytes);
}

/* Refuses a request beyond a limit before any of its chunks is created. */
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
