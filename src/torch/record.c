/* Recording: see record.h. */
#include "torch/record.h"
#include "base/error.h"
#include "torch/plugin.h"

/* A call of a cache that is being recorded: what its changes want to know. */
struct call {
    struct torch_device *device;
    struct call *outer;
    uint64_t stack;
    uint64_t freed;     /* the block that it frees; 0: none */
    uint64_t completed; /* the number of that block's FREE_COMPLETED */
    bool waits;         /* it is not free yet */
    bool is_over;       /* what is known of that block was forgotten already */
};

static struct lock recording = { PTHREAD_MUTEX_INITIALIZER };
static uint64_t entries_kept; /* of each device; 0: nothing is recorded */
static _Atomic(vmm_torch_stack_fn) stack_fn;
static _Atomic bool asks_frees; /* for stacks */
static _Atomic bool pressure_ended;
static _Thread_local struct call *innermost;

static uint64_t stack_ask(bool is_free)
{
    vmm_torch_stack_fn ask = atomic_load_explicit(&stack_fn, memory_order_acquire);
    bool asks = !is_free || atomic_load_explicit(&asks_frees, memory_order_relaxed);
    return ask != NULL && asks ? ask() : 0;
}

static void call_enter(struct call *call)
{
    vmm__lock_take(&call->device->history.order);
    call->outer = innermost;
    innermost = call;
}

static void call_leave(struct call *call)
{
    innermost = call->outer;
    vmm__lock_drop(&call->device->history.order);
}

/* ---- Telling -------------------------------------------------------------------------------- */

static uint64_t block_tell(struct torch_device *device, vmm_torch_action action,
                           const struct known *block, uint64_t stack)
{
    vmm_torch_event event = { .address = block->address,
                              .bytes = block->requested_bytes,
                              .stream = block->stream,
                              .stack = stack,
                              .pool = block->pool,
                              .action = (int32_t)action,
                              .device = device->ordinal };
    return vmm__history_push(&device->history, &event);
}

static struct known block_of(const vmm_item *item)
{
    return (struct known){ .address = item->address,
                           .requested_bytes = item->requested_bytes,
                           .stream = (uint64_t)(uintptr_t)item->stream,
                           .pool = item->pool };
}

/* What the cache knows of a live block. */
static bool block_find(const struct torch_device *device, const void *ptr, struct known *out)
{
    vmm_item item = VMM_ITEM_INIT;
    struct error_line line;
    vmm__error_save(&line);
    if (vmm_find(vmm__torch_cache_of(device), ptr, &item) != VMM_OK) {
        vmm__error_restore(&line);
        return false;
    }
    *out = block_of(&item);
    return item.address == (uint64_t)(uintptr_t)ptr;
}

static void alloc_tell(struct torch_device *device, struct known *block, uint64_t stack)
{
    block->stack = stack;
    block->is_told = true;
    vmm__history_learn(&device->history, block);
    (void)block_tell(device, VMM_TORCH_ALLOC, block, stack);
}

static void oom_tell(struct torch_device *device, uint64_t bytes, vmm_stream stream, uint64_t stack)
{
    vmm_torch_event event = { .bytes = bytes,
                              .stream = (uint64_t)(uintptr_t)stream,
                              .stack = stack,
                              .action = VMM_TORCH_OOM,
                              .device = device->ordinal };
    struct error_line line;
    uint64_t total_bytes;
    vmm__error_save(&line);
    (void)vmm_device_memory(vmm__torch_cache_of(device), &event.address, &total_bytes);
    vmm__error_restore(&line);
    (void)vmm__history_push(&device->history, &event);
}

/* ---- Calls ---------------------------------------------------------------------------------- */

vmm_status vmm__record_alloc(struct torch_device *device, size_t bytes, vmm_stream stream,
                             void **out)
{
    struct call call = { .device = device, .stack = stack_ask(false) };
    struct known block;
    call_enter(&call);
    vmm_status status = vmm_alloc(vmm__torch_cache_of(device), bytes, stream, out);
    if (status == VMM_OK && block_find(device, *out, &block)) /* it knows of private pools */
        alloc_tell(device, &block, call.stack);
    else if (vmm__is_shortage(status))
        oom_tell(device, bytes, stream, call.stack);
    call_leave(&call);
    return status;
}

void vmm__record_late_alloc(struct torch_device *device, const void *ptr)
{
    struct call call = { .device = device, .stack = stack_ask(false) };
    struct known block;
    call_enter(&call);
    bool is_known =
        vmm__history_recall(&device->history, (uint64_t)(uintptr_t)ptr, &block) && block.is_told;
    if (!is_known && block_find(device, ptr, &block))
        alloc_tell(device, &block, call.stack);
    call_leave(&call);
}

/* If what is known of the address is not of the block that lies there now. */
void vmm__record_late_free(struct torch_device *device, const void *ptr)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    struct known block;
    vmm__lock_take(&device->history.order);
    if (vmm__history_recall(&device->history, address, &block) && !block.is_told)
        vmm__history_forget(&device->history, address);
    vmm__lock_drop(&device->history.order);
}

void vmm__record_found(struct torch_device *device, const vmm_item *item)
{
    struct known block = block_of(item);
    alloc_tell(device, &block, 0);
}

/* Frees a block that `known` says all about, and forgets it unless other streams still use it. */
static vmm_status free_tell(struct call *call, void *ptr, const struct known *block)
{
    struct history *history = &call->device->history;
    uint64_t requested = block_tell(call->device, VMM_TORCH_FREE_REQUESTED, block, call->stack);
    call->completed = block_tell(call->device, VMM_TORCH_FREE_COMPLETED, block, call->stack);
    vmm_status status = vmm_free(vmm__torch_cache_of(call->device), ptr);
    if (status != VMM_OK && status != VMM_ERR_CORRUPTED) { /* which was taken back */
        vmm__history_strike(history, requested);
        vmm__history_strike(history, call->completed);
    } else if (!call->waits && !call->is_over) {
        vmm__history_forget(history, call->freed);
    }
    return status;
}

vmm_status vmm__record_free(struct torch_device *device, void *ptr)
{
    struct call call = { .device = device,
                         .stack = stack_ask(true),
                         .freed = (uint64_t)(uintptr_t)ptr };
    struct known block;
    vmm_status status;
    call_enter(&call);
    bool was_known = vmm__history_recall(&device->history, call.freed, &block);
    if (!was_known && !block_find(device, ptr, &block)) {
        status = vmm_free(vmm__torch_cache_of(device), ptr); /* says what is wrong */
    } else {
        vmm__history_learn(&device->history, &block);
        status = free_tell(&call, ptr, &block);
        if (status != VMM_OK && !was_known && !call.is_over)
            vmm__history_forget(&device->history, call.freed);
    }
    call_leave(&call);
    return status;
}

/* ---- Changes -------------------------------------------------------------------------------- */

static void segment_tell(struct torch_device *device, vmm_torch_action action,
                         const vmm_change *change)
{
    const struct call *call = innermost;
    vmm_torch_event event = { .address = change->address,
                              .bytes = change->bytes,
                              .stream = (uint64_t)(uintptr_t)change->stream,
                              .stack = call != NULL && call->device == device ? call->stack : 0,
                              .pool = change->pool,
                              .action = (int32_t)action,
                              .device = device->ordinal };
    (void)vmm__history_push(&device->history, &event);
}

static void wait_tell(struct torch_device *device, const vmm_change *change)
{
    struct call *call = innermost;
    if (call == NULL || call->device != device || call->freed != change->address)
        return;
    vmm__history_strike(&device->history, call->completed);
    call->waits = true;
}

static void completed_tell(struct torch_device *device, const vmm_change *change)
{
    struct known block;
    if (!vmm__history_recall(&device->history, change->address, &block))
        block = (struct known){ .address = change->address,
                                .requested_bytes = change->bytes,
                                .stream = (uint64_t)(uintptr_t)change->stream,
                                .pool = change->pool };
    vmm__history_forget(&device->history, change->address);
    (void)block_tell(device, VMM_TORCH_FREE_COMPLETED, &block, 0);
}

void vmm__record_change(struct torch_device *device, const vmm_change *change)
{
    switch (change->kind) {
    case VMM_CHANGE_MAP:
        segment_tell(device, VMM_TORCH_SEGMENT_MAP, change);
        break;
    case VMM_CHANGE_UNMAP:
        segment_tell(device, VMM_TORCH_SEGMENT_UNMAP, change);
        break;
    case VMM_CHANGE_WAIT:
        wait_tell(device, change);
        break;
    case VMM_CHANGE_FREE:
        completed_tell(device, change);
        break;
    }
}

void vmm_torch_pressure_end(void)
{
    atomic_store_explicit(&pressure_ended, true, memory_order_release);
}

/* Leaves the call of a device that the thread is in, if it is in one, so that the program may do what it likes. */
static struct call *call_pause(struct torch_device *device)
{
    struct call *call = innermost;
    if (call == NULL || call->device != device)
        return NULL;
    innermost = NULL;
    vmm__lock_drop(&device->history.order);
    return call;
}

static void call_resume(struct call *call)
{
    if (call == NULL)
        return;
    vmm__lock_take(&call->device->history.order);
    innermost = call;
}

int vmm__record_pressure(void *context, size_t bytes)
{
    if (atomic_load_explicit(&pressure_ended, memory_order_acquire))
        return 0;
    struct torch_device *device = context;
    struct call *call = call_pause(device);
    int freed = device->pressure(device->pressure_context, bytes);
    call_resume(call);
    return freed;
}

/* A block that is being freed has been: what is known of the address may be of another one from now on. */
void vmm__record_misuse(void *context, const char *line)
{
    struct torch_device *device = context;
    struct call *call = innermost;
    if (call != NULL && call->device == device && call->freed != 0 && !call->waits) {
        vmm__history_forget(&device->history, call->freed);
        call->is_over = true;
    }
    call = call_pause(device);
    device->misuse(device->misuse_context, line);
    call_resume(call);
}

/* ---- Beginning and ending ------------------------------------------------------------------- */

static int block_visit(void *context, const vmm_item *item)
{
    struct torch_device *device = context;
    struct known block = block_of(item);
    if (item->kind == VMM_ITEM_BLOCK && item->state == VMM_ITEM_LIVE)
        vmm__history_learn(&device->history, &block);
    return 0;
}

static vmm_status device_begin(struct torch_device *device)
{
    vmm__lock_take(&device->history.order);
    vmm_status status = vmm__history_prepare(&device->history, entries_kept);
    if (status == VMM_OK)
        status = vmm_walk(vmm__torch_cache_of(device), block_visit, device);
    if (status == VMM_OK)
        vmm__history_open(&device->history);
    vmm__lock_drop(&device->history.order);
    return status;
}

static void device_end(struct torch_device *device)
{
    vmm__lock_take(&device->history.order);
    vmm__history_close(&device->history);
    vmm__lock_drop(&device->history.order);
}

static void recording_end_locked(void)
{
    atomic_store_explicit(&stack_fn, NULL, memory_order_relaxed);
    entries_kept = 0;
    for (int ordinal = 0; ordinal < TORCH_DEVICES; ordinal++) {
        struct torch_device *device = vmm__torch_find(ordinal);
        if (device != NULL)
            device_end(device);
    }
    atomic_fetch_and_explicit(&vmm__torch_mode, ~(unsigned)TORCH_RECORDS, memory_order_relaxed);
}

static vmm_status recording_begin_locked(uint64_t entries)
{
    vmm_status status = VMM_OK;
    entries_kept = entries;
    atomic_fetch_or_explicit(&vmm__torch_mode, TORCH_RECORDS, memory_order_relaxed);
    for (int ordinal = 0; ordinal < TORCH_DEVICES && status == VMM_OK; ordinal++) {
        struct torch_device *device = vmm__torch_find(ordinal);
        if (device != NULL)
            status = device_begin(device);
    }
    if (status != VMM_OK)
        recording_end_locked();
    return status;
}

vmm_status vmm_torch_history_start(uint64_t entries, vmm_torch_stack_fn stack, int free_stacks)
{
    if (entries == 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_torch_history_start: entries is 0");
    if ((vmm__torch_mode_now() & TORCH_FORKED) != 0)
        return vmm__torch_forked_error();
    vmm__lock_take(&recording);
    recording_end_locked();
    atomic_store_explicit(&asks_frees, free_stacks != 0, memory_order_relaxed);
    atomic_store_explicit(&stack_fn, stack, memory_order_release);
    vmm_status status = recording_begin_locked(entries);
    vmm__lock_drop(&recording);
    return status;
}

vmm_status vmm_torch_history_stop(void)
{
    if ((vmm__torch_mode_now() & TORCH_FORKED) != 0)
        return vmm__torch_forked_error();
    vmm__lock_take(&recording);
    recording_end_locked();
    vmm__lock_drop(&recording);
    return VMM_OK;
}

void vmm__record_newcomer(struct torch_device *device)
{
    vmm__lock_take(&recording);
    if (entries_kept > 0)
        (void)device_begin(device);
    vmm__lock_drop(&recording);
}

const char *vmm_torch_action_word(int action)
{
    switch (action) {
#define ACTION_WORD(name, value, word)                                                             \
    case value:                                                                                    \
        return word;
        VMM_TORCH_ACTION_MAP(ACTION_WORD)
#undef ACTION_WORD
    }
    return NULL;
}
