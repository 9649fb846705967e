/* The replayer: see replay.h. */
#include "fragtest/replay/replay.h"

#include "base/clock.h"
#include "base/error.h"
#include "fragtest/replay/timing.h"
#include "fragtest/replay/verify.h"
#include "fragtest/trace/lower_bound.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_STEP 256U

struct replay {
    const struct replay_request *request;
    struct replay_outcome *outcome;
    struct driver *driver;
    struct policy *policy;
    struct policy_place *places; /* of each block; address 0: not live */
    vmm_stream *streams;
    struct verify verify;
    bool work;
    unsigned pass;
    uint64_t live_bytes;
    uint64_t reserved_base;
    struct timing timing;
    struct trims trims;
};

static uint64_t reserved_bytes(const struct replay *replay)
{
    return atomic_load(&replay->driver->created_bytes) - replay->reserved_base;
}

/* A word of its own for each allocation of the run: multiplying by an odd number loses nothing. */
static uint32_t block_word(const struct replay *replay, uint32_t block)
{
    uint32_t number = replay->pass * replay->request->trace->block_count + block;
    return number * 2654435761U + 1U;
}

static vmm_stream block_stream(const struct replay *replay, uint32_t block)
{
    return replay->streams[replay->request->trace->blocks[block].stream];
}

static void sample_take(struct replay *replay, uint64_t op)
{
    struct replay_outcome *outcome = replay->outcome;
    uint64_t reserved = reserved_bytes(replay);

    if (reserved > outcome->peak_reserved_bytes)
        outcome->peak_reserved_bytes = reserved;
    if (replay->request->timeline != NULL)
        timeline_note(replay->request->timeline, op, replay->live_bytes, reserved);
}

static vmm_status block_alloc(struct replay *replay, uint32_t block)
{
    const struct trace_block *wanted = &replay->request->trace->blocks[block];
    struct policy_place *place = &replay->places[block];
    struct policy_place taken = { 0 };

    uint64_t start = vmm__clock_ns();
    vmm_status status =
        replay->policy->ops->alloc(replay->policy, wanted->bytes, wanted->stream, &taken);
    timing_call(&replay->timing, start);
    if (status != VMM_OK)
        return status;
    *place = taken;
    replay->live_bytes += wanted->bytes;
    if (replay->request->verify)
        verify_alloc(&replay->verify, block, place->address);
    if (!replay->work)
        return VMM_OK;
    return vmm__driver_fill(replay->driver, place->address, wanted->bytes,
                            block_word(replay, block), block_stream(replay, block));
}

static vmm_status block_free(struct replay *replay, uint32_t block)
{
    const struct trace_block *wanted = &replay->request->trace->blocks[block];
    struct policy_place place = replay->places[block];

    if (replay->work) {
        vmm_status status =
            vmm__driver_check(replay->driver, place.address, wanted->bytes,
                              block_word(replay, block), block_stream(replay, block));
        if (status != VMM_OK)
            return status;
    }
    if (replay->request->verify)
        verify_free(&replay->verify, block);
    replay->places[block] = (struct policy_place){ 0 };
    replay->live_bytes -= wanted->bytes;
    uint64_t start = vmm__clock_ns();
    vmm_status status = replay->policy->ops->free(replay->policy, place);
    timing_call(&replay->timing, start);
    return status;
}

/* Frees what is live still, outside of the time per operation. Goes on after a failure. */
static vmm_status blocks_free(struct replay *replay)
{
    vmm_status first = VMM_OK;

    for (uint32_t i = 0; i < replay->request->trace->block_count; i++) {
        if (replay->places[i].token == NULL)
            continue;
        vmm_status status = block_free(replay, i);
        if (first == VMM_OK)
            first = status;
    }
    return first;
}

/* Where in the run it was, behind the text on what was wrong. */
static void reason_end(struct replay *replay, uint32_t op)
{
    char *text = replay->outcome->reason;
    size_t used = strlen(text);

    (void)snprintf(text + used, REPLAY_REASON_BYTES - used,
                   "; at operation %" PRIu32 " of %" PRIu32, op + 1,
                   replay->request->trace->op_count);
    if (replay->request->passes == 1)
        return;
    used = strlen(text);
    (void)snprintf(text + used, REPLAY_REASON_BYTES - used, ", pass %u", replay->pass + 1);
}

static void reason_write(struct replay *replay, uint32_t op, vmm_status status)
{
    const struct trace *trace = replay->request->trace;
    const struct trace_block *block = &trace->blocks[trace_op_block(trace->ops[op])];
    char *text = replay->outcome->reason;

    if (status == VMM_ERR_DEVICE_OOM && !trace_op_frees(trace->ops[op]))
        replay->policy->ops->explain(replay->policy, block->bytes, block->stream, text,
                                     REPLAY_REASON_BYTES - 64);
    else
        (void)snprintf(text, REPLAY_REASON_BYTES - 64, "%s: %s", vmm_status_name(status),
                       vmm_last_error());
    reason_end(replay, op);
}

static vmm_status trim_run(struct replay *replay)
{
    vmm_status status = timing_settle(&replay->timing);
    if (status != VMM_OK)
        return status;
    uint64_t start = vmm__clock_ns();
    status = replay->policy->ops->trim(replay->policy);
    timing_call(&replay->timing, start);
    if (status == VMM_OK)
        trims_note(&replay->outcome->trims, replay->live_bytes, reserved_bytes(replay));
    return status;
}

/* Those that are due after an operation. */
static bool trims_run(struct replay *replay, uint32_t op)
{
    if (replay->policy->ops->trim == NULL)
        return true;
    while (trims_due(&replay->trims, op)) {
        vmm_status status = trim_run(replay);
        if (status == VMM_OK)
            continue;
        (void)snprintf(replay->outcome->reason, REPLAY_REASON_BYTES - 64, "trim: %s: %s",
                       vmm_status_name(status), vmm_last_error());
        reason_end(replay, op);
        return false;
    }
    return true;
}

/* The trace once, up to the first operation that fails. */
static bool ops_run(struct replay *replay)
{
    const struct trace *trace = replay->request->trace;
    uint64_t before = (uint64_t)replay->pass * trace->op_count;

    for (uint32_t i = 0; i < trace->op_count; i++) {
        uint32_t block = trace_op_block(trace->ops[i]);
        vmm_status status =
            trace_op_frees(trace->ops[i]) ? block_free(replay, block) : block_alloc(replay, block);
        if (status != VMM_OK) {
            reason_write(replay, i, status);
            return false;
        }
        sample_take(replay, before + i);
        if (!trims_run(replay, i))
            return false;
        replay->outcome->ops_done++;
        if (replay->request->progress != NULL && i % PROGRESS_STEP == 0)
            progress_step(replay->request->progress, before + i);
    }
    return true;
}

static bool pass_run(struct replay *replay)
{
    struct replay_outcome *outcome = replay->outcome;
    struct replay_pass *pass = &outcome->passes[replay->pass];

    timing_pass(&replay->timing);
    trims_pass(&replay->trims);
    outcome->ops_done = 0;
    bool ok = ops_run(replay);
    double ns = timing_pass_ns(&replay->timing);

    vmm_status status = blocks_free(replay);
    if (ok && status != VMM_OK) {
        reason_write(replay, replay->request->trace->op_count - 1, status);
        ok = false;
    }
    pass->driver_ns = timing_pass_driver_ns(&replay->timing);
    outcome->driver_ns += pass->driver_ns;
    if (outcome->ops_done > 0) {
        pass->ns_per_op = ns / (double)outcome->ops_done;
        outcome->pass_count++;
    }
    return ok;
}

static void passes_run(struct replay *replay)
{
    struct replay_outcome *outcome = replay->outcome;

    timing_begin(&replay->timing, replay->driver);
    outcome->ok = true;
    for (replay->pass = 0; outcome->ok && replay->pass < replay->request->passes; replay->pass++)
        outcome->ok = pass_run(replay);
    for (unsigned i = 0; i < DRIVER_CALL_COUNT; i++)
        outcome->calls[i] = timing_calls(&replay->timing, (enum driver_call)i);
    outcome->stalls = timing_stalls(&replay->timing);
    if (replay->request->timeline != NULL)
        replay->request->timeline->ops_done =
            (uint64_t)(replay->pass - 1) * outcome->ops + outcome->ops_done;
}

static vmm_status policy_start(struct replay *replay)
{
    const struct replay_request *request = replay->request;
    struct policy_setup setup = {
        .driver = replay->driver,
        .limit_bytes = request->limit_bytes,
        .streams = replay->streams,
        .stream_count = request->trace->stream_count,
        .settings = request->settings,
    };
    vmm_status status;

    if (request->verify) {
        status = verify_init(&replay->verify, replay->driver, request->trace);
        if (status != VMM_OK)
            return status;
    }
    replay->reserved_base = replay->driver->created_bytes;
    return request->policy->open(&setup, &replay->policy);
}

/* Closes the policy and says whether all was well. */
static void policy_end(struct replay *replay)
{
    struct replay_outcome *outcome = replay->outcome;
    char text[REPLAY_REASON_BYTES];
    bool verified = false;
    bool closed = replay->policy->ops->close(replay->policy) == VMM_OK;

    if (!closed)
        (void)snprintf(text, sizeof(text), "closing failed: %s", vmm_last_error());
    else if (replay->request->verify)
        verified = verify_end(&replay->verify, text, sizeof(text));
    outcome->ok = outcome->ok && closed;
    if (replay->request->verify)
        outcome->verified = verified ? REPLAY_VERIFIED : REPLAY_WRONG;
    if (outcome->reason[0] == '\0' && (!closed || outcome->verified == REPLAY_WRONG))
        (void)snprintf(outcome->reason, sizeof(outcome->reason), "%s", text);
}

/* Stream number 0 of a trace is the default stream; the others are created. */
static vmm_status streams_create(struct replay *replay)
{
    const struct trace *trace = replay->request->trace;

    for (uint32_t number = 1; number <= TRACE_MAX_STREAM; number++) {
        if (trace->stream_numbers[number] == 0)
            continue;
        vmm_status status = vmm__driver_stream_create(
            replay->driver, &replay->streams[trace->stream_numbers[number] - 1]);
        if (status != VMM_OK)
            return status;
    }
    return VMM_OK;
}

static void streams_destroy(struct replay *replay)
{
    for (uint32_t i = 0; i < replay->request->trace->stream_count; i++) {
        if (replay->streams[i] != NULL)
            (void)vmm__driver_stream_destroy(replay->driver, replay->streams[i]);
    }
}

static vmm_status arrays_create(struct replay *replay)
{
    const struct replay_request *request = replay->request;

    replay->places = calloc(request->trace->block_count, sizeof(*replay->places));
    replay->streams = calloc(request->trace->stream_count, sizeof(*replay->streams));
    replay->outcome->passes = calloc(request->passes, sizeof(*replay->outcome->passes));
    if (replay->places == NULL || replay->streams == NULL || replay->outcome->passes == NULL ||
        !lower_bound_find(request->trace, request->lag, &replay->outcome->lower_bound_bytes))
        return vmm__error(VMM_ERR_HOST_OOM, "out of host memory for the replay");
    return VMM_OK;
}

bool replay_is_sim(const struct driver *driver)
{
    return strcmp(driver->ops->name, "sim") == 0;
}

static void replay_do(struct replay *replay)
{
    vmm_status status = arrays_create(replay);

    if (status == VMM_OK)
        status = streams_create(replay);
    if (status == VMM_OK)
        status = policy_start(replay);
    if (status != VMM_OK) {
        (void)snprintf(replay->outcome->reason, REPLAY_REASON_BYTES, "could not begin: %s",
                       vmm_last_error());
        return;
    }
    passes_run(replay);
    policy_end(replay);
}

void replay_run(const struct replay_request *request, struct replay_outcome *outcome)
{
    struct replay replay = {
        .request = request,
        .outcome = outcome,
        .driver = request->driver,
        .work = request->verify || replay_is_sim(request->driver),
    };

    *outcome = (struct replay_outcome){
        .ops = request->trace->op_count,
        .peak_live_bytes = request->trace->peak_live_bytes,
        .peak_busy_bytes = trace_peak_busy(request->trace, request->lag),
        .lower_bound_bytes = request->trace->peak_live_bytes,
    };
    trims_init(&replay.trims, request->trims, request->trace->op_count);
    if (request->timeline != NULL)
        *request->timeline = (struct timeline){ .ops = outcome->ops * request->passes };
    replay_do(&replay);
    if (replay.streams != NULL)
        streams_destroy(&replay);
    verify_fini(&replay.verify);
    free(replay.streams);
    free(replay.places);
}

void replay_outcome_free(struct replay_outcome *outcome)
{
    free(outcome->passes);
    outcome->passes = NULL;
}
