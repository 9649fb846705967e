/* The recorder: see record.h. */
#include "torch/record.h"
#include "api/heard.h"
#include "base/error.h"
#include "torch/python.h"

static struct mutex recording = { .mutex = PTHREAD_MUTEX_INITIALIZER };
static uint64_t entries_kept; /* of each device; 0: not recording */
static _Atomic(vmm_torch_stack_fn) stack_fn;
static _Atomic(vmm_torch_stack_fn) free_stack_fn;
static _Atomic(vmm_torch_stack_fn) texts_fn;
static _Thread_local const struct recorded_call *innermost;

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

void vmm__record_begin(struct recorded_call *call, const struct torch_device *device, bool is_free)
{
    *call =
        (struct recorded_call){ .device = device, .outer = innermost, .stack = stack_get(is_free) };
    innermost = call;
}

void vmm__record_end(const struct recorded_call *call)
{
    innermost = call->outer;
    vmm__history_stack_drop(call->stack);
}

/* The recorded call that makes a change of a device; NULL: none does. */
static const struct recorded_call *call_of(const struct torch_device *device)
{
    return innermost != NULL && innermost->device == device ? innermost : NULL;
}

static struct live_block block_of(const vmm_item *item)
{
    return (struct live_block){ .address = item->address,
                                .requested_bytes = item->requested_bytes,
                                .stream = (uint64_t)(uintptr_t)item->stream,
                                .pool = item->pool_id };
}

void vmm__record_found(struct torch_device *device, const vmm_item *item)
{
    struct live_block block = block_of(item);
    vmm__history_alloc(&device->history, &block);
}

void vmm__record_oom(struct torch_device *device, uint64_t bytes, vmm_stream stream)
{
    const struct recorded_call *call = call_of(device);
    struct live_block request = { .requested_bytes = bytes,
                                  .stream = (uint64_t)(uintptr_t)stream,
                                  .stack = call != NULL ? call->stack : 0 };
    uint64_t total_bytes;
    VMM_QUIET();
    (void)vmm_device_memory(vmm__torch_cache_of(device), &request.address, &total_bytes);
    vmm__history_note(&device->history, VMM_TORCH_OOM, &request);
}

/* ---- Changes -------------------------------------------------------------------------------- */

static void change_record(struct history *history, const vmm_change *change, uint64_t stack)
{
    bool is_of_block = change->kind == VMM_CHANGE_WAIT || (int)change->kind == VMM__CHANGE_ALLOC;
    struct live_block block = { .address = change->address,
                                .requested_bytes =
                                    is_of_block ? change->requested_bytes : change->bytes,
                                .stream = (uint64_t)(uintptr_t)change->stream,
                                .stack = stack,
                                .pool = change->pool_id };
    switch ((int)change->kind) {
    case VMM_CHANGE_MAP:
        vmm__history_note(history, VMM_TORCH_SEGMENT_MAP, &block);
        break;
    case VMM_CHANGE_UNMAP:
        vmm__history_note(history, VMM_TORCH_SEGMENT_UNMAP, &block);
        break;
    case VMM_CHANGE_WAIT:
        vmm__history_wait(history, &block);
        break;
    case VMM_CHANGE_FREE:
        vmm__history_complete(history, &block);
        break;
    case VMM__CHANGE_ALLOC:
        vmm__history_alloc(history, &block);
        break;
    case VMM__CHANGE_RELEASE:
        vmm__history_release(history, block.address, stack);
        break;
    }
}

/* The end of a wait is not the call's that finds it. What no recorded call makes has texts only. */
void vmm__record_change(struct torch_device *device, const vmm_change *change)
{
    bool is_end = change->kind == VMM_CHANGE_FREE;
    if (!vmm__torch_records()) {
        if (is_end)
            vmm__history_forget(&device->history, change->address, true);
        return;
    }
    const struct recorded_call *call = is_end ? NULL : call_of(device);
    uint64_t stack = call != NULL ? call->stack : texts_get();
    change_record(&device->history, change, stack);
    if (call == NULL)
        vmm__history_stack_drop(stack);
}

/* ---- Start and stop ------------------------------------------------------------------------- */

/* A block keeps the stack that an earlier recording has given it. */
static int live_block_visit(void *context, const vmm_item *item)
{
    struct torch_device *device = context;
    struct live_block block = block_of(item);
    if (item->kind == VMM_ITEM_BLOCK && item->state == VMM_ITEM_LIVE)
        vmm__history_learn(&device->history, &block);
    return 0;
}

static vmm_status history_begin(void *context)
{
    struct torch_device *device = context;
    return vmm__history_open(&device->history, entries_kept);
}

static vmm_status device_start(struct torch_device *device)
{
    return vmm__hear_begin(vmm__torch_cache_of(device), history_begin, live_block_visit, device);
}

static void device_stop(struct torch_device *device)
{
    vmm__hear_end(vmm__torch_cache_of(device));
    vmm__history_close(&device->history);
}

static void known_note_locked(void)
{
    VMM_ASSERT_HELD(&recording);
    if (vmm__history_knows())
        atomic_fetch_or_explicit(&vmm__torch_mode, TORCH_KNOWS, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(&vmm__torch_mode, ~(unsigned)TORCH_KNOWS, memory_order_relaxed);
}

/* Forgets an entry that describes the block that was freed, not one that lies there now. */
void vmm__record_late_free(struct torch_device *device, const void *ptr)
{
    vmm__history_forget(&device->history, (uint64_t)(uintptr_t)ptr, false);
    if (vmm__history_knows())
        return;
    vmm__mutex_lock(&recording);
    known_note_locked();
    vmm__mutex_unlock(&recording);
}

/* A free sees one of the two flags, or both, until no block of the recording is known. */
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
    known_note_locked();
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
    vmm__mutex_lock(&recording);
    bool goes_on = wanted->keeps && entries_kept == wanted->entries;
    if (!goes_on)
        recording_stop_locked();
    if (wanted->use == NULL) /* it cannot count down what an earlier one has left */
        known_forget_locked();
    vmm__history_count_stacks_by(wanted->use);
    atomic_store_explicit(&stack_fn, wanted->stack, memory_order_release);
    atomic_store_explicit(&free_stack_fn, wanted->free_stack, memory_order_release);
    atomic_store_explicit(&texts_fn, wanted->texts, memory_order_release);
    vmm_status status = goes_on ? VMM_OK : recording_start_locked(wanted->entries);
    vmm__mutex_unlock(&recording);
    return status;
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
    vmm__mutex_lock(&recording);
    recording_stop_locked();
    vmm__mutex_unlock(&recording);
    return VMM_OK;
}

void vmm__record_newcomer(struct torch_device *device)
{
    vmm__mutex_lock(&recording);
    if (entries_kept > 0)
        (void)device_start(device);
    vmm__mutex_unlock(&recording);
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
