/* The recorder: see record.h. */
#include "torch/record.h"
#include "base/error.h"
#include "torch/python.h"

/* A recorded call of a cache, for the changes that the cache reports during the call. */
struct call {
    struct torch_device *device;
    struct call *outer;
    uint64_t stack;
    uint64_t freed;     /* the block that the call frees; 0: none */
    uint64_t completed; /* the number of that block's FREE_COMPLETED */
    bool waits;         /* other streams still use that block */
    bool is_forgotten;  /* the live map no longer has that block */
};

static struct mutex recording = VMM_MUTEX_INIT;
static uint64_t entries_kept; /* of each device; 0: not recording */
static _Atomic(vmm_torch_stack_fn) stack_fn;
static _Atomic(vmm_torch_stack_fn) free_stack_fn;
static _Atomic(vmm_torch_stack_fn) texts_fn;
static _Atomic(vmm_torch_reclaim_fn) reclaim_fn;
static _Atomic bool pressure_ended;
static _Thread_local struct call *innermost;

static uint64_t stack_get(bool is_free)
{
    vmm_torch_stack_fn get =
        atomic_load_explicit(is_free ? &free_stack_fn : &stack_fn, memory_order_acquire);
    if (get == NULL)
        return 0;
    struct python_error error;
    vmm__python_error_take(&error);
    uint64_t stack = get();
    vmm__python_error_restore(&error);
    return stack;
}

/* With the cache's locks held. */
static uint64_t texts_get(void)
{
    vmm_torch_stack_fn get = atomic_load_explicit(&texts_fn, memory_order_acquire);
    return get == NULL ? 0 : get();
}

uint64_t vmm__record_stack(void)
{
    return stack_get(true);
}

static void call_enter(struct call *call)
{
    vmm__mutex_lock(&call->device->history.order);
    call->outer = innermost;
    innermost = call;
}

/* Ends the call's own use of its stack. */
static void call_leave(struct call *call)
{
    innermost = call->outer;
    vmm__mutex_unlock(&call->device->history.order);
    vmm__history_stack_drop(call->stack);
}

/* ---- Events --------------------------------------------------------------------------------- */

static uint64_t block_record(struct torch_device *device, vmm_torch_action action,
                             const struct live_block *block, uint64_t stack)
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

static struct live_block block_of(const vmm_item *item)
{
    return (struct live_block){ .address = item->address,
                                .requested_bytes = item->requested_bytes,
                                .stream = (uint64_t)(uintptr_t)item->stream,
                                .pool = item->pool_id };
}

/* Asks the cache about a live block. */
static bool block_find(const struct torch_device *device, const void *ptr, struct live_block *out)
{
    vmm_item item = VMM_ITEM_INIT;
    struct error_line line;
    vmm__error_save(&line);
    if (vmm_find(vmm__torch_cache_of(device), ptr, &item) != VMM_OK) {
        vmm__error_restore(&line);
        return false;
    }
    *out = block_of(&item);
    return item.address == (uint64_t)(uintptr_t)ptr && !item.is_reserved;
}

static void alloc_record(struct torch_device *device, struct live_block *block, uint64_t stack)
{
    block->stack = stack;
    block->told = block_record(device, VMM_TORCH_ALLOC, block, stack) + 1;
    vmm__history_learn(&device->history, block);
}

static void oom_record(struct torch_device *device, uint64_t bytes, vmm_stream stream,
                       uint64_t stack)
{
    vmm_torch_event event = { .bytes = bytes,
                              .stream = (uint64_t)(uintptr_t)stream,
                              .stack = stack,
                              .action = VMM_TORCH_OOM,
                              .device = device->ordinal };
    uint64_t total_bytes;
    VMM_QUIET();
    (void)vmm_device_memory(vmm__torch_cache_of(device), &event.address, &total_bytes);
    (void)vmm__history_push(&device->history, &event);
}

/* ---- Calls ---------------------------------------------------------------------------------- */

vmm_status vmm__record_alloc(struct torch_device *device, size_t bytes, vmm_stream stream,
                             void **out)
{
    struct call call = { .device = device, .stack = stack_get(false) };
    struct live_block block;
    call_enter(&call);
    vmm_status status = vmm_alloc(vmm__torch_cache_of(device), bytes, stream, out);
    if (status == VMM_OK && block_find(device, *out, &block)) /* the cache knows the block's pool */
        alloc_record(device, &block, call.stack);
    else if (vmm__is_oom(status))
        oom_record(device, bytes, stream, call.stack);
    call_leave(&call);
    return status;
}

void vmm__record_late_alloc(struct torch_device *device, const void *ptr)
{
    struct call call = { .device = device, .stack = stack_get(false) };
    struct live_block block;
    call_enter(&call);
    bool is_known =
        vmm__history_recall(&device->history, (uint64_t)(uintptr_t)ptr, &block) && block.told != 0;
    if (!is_known && block_find(device, ptr, &block))
        alloc_record(device, &block, call.stack);
    call_leave(&call);
}

/* Forgets an entry that describes the block that was freed, not one that lies there now. */
void vmm__record_late_free(struct torch_device *device, const void *ptr)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    struct live_block block;
    VMM_HOLD(&device->history.order);
    if (vmm__history_recall(&device->history, address, &block) && block.told == 0)
        vmm__history_forget(&device->history, address);
}

bool vmm__record_is_block(vmm_item *item)
{
    if (item->is_imported)
        return false;
    if (!item->is_reserved)
        return item->kind == VMM_ITEM_BLOCK;
    if (item->kind != VMM_ITEM_CHUNK ||
        (item->state != VMM_ITEM_LIVE && item->state != VMM_ITEM_ASLEEP))
        return false;
    item->kind = VMM_ITEM_BLOCK;
    item->state = VMM_ITEM_LIVE;
    item->requested_bytes = item->bytes;
    return true;
}

void vmm__record_found(struct torch_device *device, const vmm_item *item)
{
    struct live_block block = block_of(item);
    alloc_record(device, &block, 0);
}

/* Frees a block that the live map has, and forgets it unless other streams still use it. */
static vmm_status free_record(struct call *call, void *ptr, const struct live_block *block)
{
    struct history *history = &call->device->history;
    uint64_t requested = block_record(call->device, VMM_TORCH_FREE_REQUESTED, block, call->stack);
    call->completed = block_record(call->device, VMM_TORCH_FREE_COMPLETED, block, call->stack);
    vmm_status status = vmm_free(vmm__torch_cache_of(call->device), ptr);
    if (status != VMM_OK && status != VMM_ERR_CORRUPTED) { /* a corrupted block was freed */
        vmm__history_cancel(history, requested);
        vmm__history_cancel(history, call->completed);
    } else if (!call->waits && !call->is_forgotten) {
        vmm__history_forget(history, call->freed);
    }
    return status;
}

vmm_status vmm__record_free(struct torch_device *device, void *ptr)
{
    struct call call = { .device = device,
                         .stack = stack_get(true),
                         .freed = (uint64_t)(uintptr_t)ptr };
    struct live_block block;
    vmm_status status;
    call_enter(&call);
    bool was_known = vmm__history_recall(&device->history, call.freed, &block);
    if (!was_known && !block_find(device, ptr, &block)) {
        status = vmm_free(vmm__torch_cache_of(device), ptr); /* it reports the misuse */
    } else {
        if (!was_known)
            vmm__history_learn(&device->history, &block);
        status = free_record(&call, ptr, &block);
        if (status != VMM_OK && !was_known && !call.is_forgotten)
            vmm__history_forget(&device->history, call.freed);
    }
    call_leave(&call);
    return status;
}

vmm_status vmm__record_trim(struct torch_device *device)
{
    struct call call = { .device = device, .stack = stack_get(true) };
    call_enter(&call);
    vmm_status status = vmm_trim(vmm__torch_cache_of(device), 0, NULL);
    call_leave(&call);
    return status;
}

/* ---- Changes -------------------------------------------------------------------------------- */

/* What a change says of a block, or of memory, as if it was one. */
static struct live_block block_of_change(const vmm_change *change)
{
    bool is_of_block = change->kind == VMM_CHANGE_FREE;
    return (struct live_block){ .address = change->address,
                                .requested_bytes =
                                    is_of_block ? change->requested_bytes : change->bytes,
                                .stream = (uint64_t)(uintptr_t)change->stream,
                                .pool = change->pool_id };
}

/* Records what is not of a recorded call. */
static void other_record(struct torch_device *device, vmm_torch_action action,
                         const struct live_block *block)
{
    uint64_t stack = texts_get();
    (void)block_record(device, action, block, stack);
    vmm__history_stack_drop(stack);
}

static void segment_record(struct torch_device *device, vmm_torch_action action,
                           const vmm_change *change)
{
    const struct call *call = innermost;
    struct live_block segment = block_of_change(change);
    if (call != NULL && call->device == device)
        (void)block_record(device, action, &segment, call->stack);
    else
        other_record(device, action, &segment);
}

static void wait_record(struct torch_device *device, const vmm_change *change)
{
    struct call *call = innermost;
    struct live_block block;
    if (call != NULL && call->device == device && call->freed == change->address) {
        vmm__history_cancel(&device->history, call->completed);
        call->waits = true;
    } else if (vmm__history_recall(&device->history, change->address, &block)) {
        other_record(device, VMM_TORCH_FREE_REQUESTED, &block);
    }
}

static void completed_record(struct torch_device *device, const vmm_change *change)
{
    struct live_block block;
    if (!vmm__history_recall(&device->history, change->address, &block))
        block = block_of_change(change);
    vmm__history_forget(&device->history, change->address);
    other_record(device, VMM_TORCH_FREE_COMPLETED, &block);
}

void vmm__record_change(struct torch_device *device, const vmm_change *change)
{
    switch (change->kind) {
    case VMM_CHANGE_MAP:
        segment_record(device, VMM_TORCH_SEGMENT_MAP, change);
        break;
    case VMM_CHANGE_UNMAP:
        segment_record(device, VMM_TORCH_SEGMENT_UNMAP, change);
        break;
    case VMM_CHANGE_WAIT:
        wait_record(device, change);
        break;
    case VMM_CHANGE_FREE:
        completed_record(device, change);
        break;
    }
}

void vmm_torch_pressure_end(void)
{
    atomic_store_explicit(&pressure_ended, true, memory_order_release);
}

/* Leaves the call that the thread is in, if any, so that the program may call any function. The cache has released what
 * the call frees: its address may belong to another block from now on. */
static struct call *call_pause(void)
{
    struct call *call = innermost;
    if (call == NULL)
        return NULL;
    if (call->freed != 0 && !call->waits && !call->is_forgotten) {
        vmm__history_forget(&call->device->history, call->freed);
        call->is_forgotten = true;
    }
    innermost = NULL;
    vmm__mutex_unlock(&call->device->history.order);
    return call;
}

static void call_resume(struct call *call)
{
    if (call == NULL)
        return;
    vmm__mutex_lock(&call->device->history.order);
    innermost = call;
}

void vmm__record_reclaim_set(vmm_torch_reclaim_fn reclaim)
{
    atomic_store_explicit(&reclaim_fn, reclaim, memory_order_release);
}

bool vmm__record_reclaims(void)
{
    return atomic_load_explicit(&reclaim_fn, memory_order_acquire) != NULL;
}

static int pressure_relieve(const struct torch_device *device, vmm_pool *pool, size_t bytes)
{
    vmm_torch_reclaim_fn reclaim = atomic_load_explicit(&reclaim_fn, memory_order_acquire);
    if (reclaim != NULL && reclaim() != 0)
        return 1;
    if (device->pressure == NULL || atomic_load_explicit(&pressure_ended, memory_order_acquire))
        return 0;
    return device->pressure(device->pressure_context, pool, bytes);
}

int vmm__record_pressure(void *context, vmm_pool *pool, size_t bytes)
{
    struct torch_device *device = context;
    struct call *call = call_pause();
    int freed = pressure_relieve(device, pool, bytes);
    call_resume(call);
    return freed;
}

void vmm__record_misuse(void *context, const char *line)
{
    struct torch_device *device = context;
    struct call *call = call_pause();
    device->misuse(device->misuse_context, line);
    call_resume(call);
}

void *vmm__record_segment_alloc(void *context, size_t bytes, vmm_stream stream)
{
    const vmm_segment_source *source = context;
    struct call *call = call_pause();
    void *segment = source->alloc(source->context, bytes, stream);
    call_resume(call);
    return segment;
}

void vmm__record_segment_free(void *context, void *segment, size_t bytes)
{
    const vmm_segment_source *source = context;
    vmm_segment_free_fn give = source->free;
    struct call *call = call_pause();
    give(source->context, segment, bytes);
    call_resume(call);
}

/* ---- Start and stop ------------------------------------------------------------------------- */

/* A block keeps the stack that an earlier recording has given it. */
static int live_block_visit(void *context, const vmm_item *item)
{
    struct torch_device *device = context;
    struct live_block known, block;
    vmm_item found = *item;
    if (!vmm__record_is_block(&found) || found.state != VMM_ITEM_LIVE)
        return 0;
    block = block_of(&found);
    if (!vmm__history_recall(&device->history, block.address, &known) ||
        known.requested_bytes != block.requested_bytes)
        vmm__history_learn(&device->history, &block);
    return 0;
}

static vmm_status device_start(struct torch_device *device)
{
    VMM_HOLD(&device->history.order);
    vmm_status status = vmm__history_prepare(&device->history, entries_kept);
    if (status == VMM_OK)
        status = vmm_walk(vmm__torch_cache_of(device), live_block_visit, device);
    if (status == VMM_OK)
        vmm__history_open(&device->history);
    return status;
}

static void device_stop(struct torch_device *device)
{
    VMM_HOLD(&device->history.order);
    vmm__history_close(&device->history);
}

static void recording_stop_locked(void)
{
    VMM_ASSERT_HELD(&recording);
    atomic_store_explicit(&stack_fn, NULL, memory_order_relaxed);
    atomic_store_explicit(&free_stack_fn, NULL, memory_order_relaxed);
    atomic_store_explicit(&texts_fn, NULL, memory_order_relaxed);
    entries_kept = 0;
    for (struct torch_device *device = vmm__torch_next(NULL); device != NULL;
         device = vmm__torch_next(device))
        device_stop(device);
    atomic_fetch_and_explicit(&vmm__torch_mode, ~(unsigned)TORCH_RECORDS, memory_order_relaxed);
}

static void known_forget_locked(void)
{
    VMM_ASSERT_HELD(&recording);
    for (struct torch_device *device = vmm__torch_next(NULL); device != NULL;
         device = vmm__torch_next(device))
        vmm__history_forget_all(&device->history);
}

static vmm_status recording_start_locked(uint64_t entries)
{
    VMM_ASSERT_HELD(&recording);
    vmm_status status = VMM_OK;
    entries_kept = entries;
    atomic_fetch_or_explicit(&vmm__torch_mode, TORCH_RECORDS, memory_order_relaxed);
    for (struct torch_device *device = vmm__torch_next(NULL); device != NULL && status == VMM_OK;
         device = vmm__torch_next(device))
        status = device_start(device);
    if (status != VMM_OK)
        recording_stop_locked();
    return status;
}

vmm_status vmm__record_start(const vmm_torch_recording *wanted)
{
    if (wanted->entries == 0)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "vmm_torch_history_start: entries is 0");
    if (vmm__torch_is_forked())
        return vmm__torch_forked_error();
    VMM_HOLD(&recording);
    bool goes_on = wanted->keeps && entries_kept == wanted->entries;
    if (!goes_on)
        recording_stop_locked();
    if (wanted->use == NULL) /* it cannot count down what an earlier one has left */
        known_forget_locked();
    vmm__history_count_stacks_by(wanted->use);
    atomic_store_explicit(&stack_fn, wanted->stack, memory_order_release);
    atomic_store_explicit(&free_stack_fn, wanted->free_stack, memory_order_release);
    atomic_store_explicit(&texts_fn, wanted->texts, memory_order_release);
    return goes_on ? VMM_OK : recording_start_locked(wanted->entries);
}

vmm_status vmm_torch_history_start(uint64_t entries, vmm_torch_stack_fn stack, int free_stacks)
{
    const vmm_torch_recording wanted = { .struct_size = sizeof wanted,
                                         .entries = entries,
                                         .stack = stack,
                                         .free_stack = free_stacks ? stack : NULL };
    return vmm__record_start(&wanted);
}

vmm_status vmm_torch_history_stop(void)
{
    if (vmm__torch_is_forked())
        return vmm__torch_forked_error();
    VMM_HOLD(&recording);
    recording_stop_locked();
    return VMM_OK;
}

void vmm__record_newcomer(struct torch_device *device)
{
    VMM_HOLD(&recording);
    if (entries_kept > 0)
        (void)device_start(device);
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
