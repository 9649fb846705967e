/* The replayer: see replay.h. */
#include "fragtest/replay/replay.h"

#include "base/error.h"
#include "base/time.h"
#include "fragtest/replay/timing.h"
#include "fragtest/replay/verify.h"
#include "fragtest/trace/lower_bound.h"
#include "fragtest/trace/random.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_STEP 256U
#define JITTER_SEED   20250801U

struct replay {
    const struct replay_request *request;
    struct replay_outcome *outcome;
    struct driver *driver;
    struct policy *policy;
    struct policy_place *places; /* of each block; address 0: not live */
    uint64_t *bytes;             /* of each block, in this pass */
    uint64_t jitter_random;
    vmm_stream *streams;
    struct verify verify;
    bool work;
    unsigned pass;
    uint64_t live_bytes;
    uint64_t reserved_base;
    struct timing timing;
    struct trims trims;
    struct trims compacts;
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
    uint64_t bytes = replay->bytes[block];
    uint32_t stream = replay->request->trace->blocks[block].stream;
    struct policy_place *place = &replay->places[block];
    struct policy_place taken = { 0 };

    uint64_t start = vmm__time_ns();
    vmm_status status = replay->policy->ops->alloc(replay->policy, bytes, stream, &taken);
    timing_call(&replay->timing, start);
    if (status != VMM_OK)
        return status;
    *place = taken;
    replay->live_bytes += bytes;
    if (replay->request->verify)
        verify_alloc(&replay->verify, block, place->address);
    if (!replay->work)
        return VMM_OK;
    return vmm__driver_fill(replay->driver, place->address, bytes, block_word(replay, block),
                            block_stream(replay, block));
}

static vmm_status block_free(struct replay *replay, uint32_t block)
{
    uint64_t bytes = replay->bytes[block];
    struct policy_place place = replay->places[block];

    if (replay->work) {
        vmm_status status =
            vmm__driver_check(replay->driver, place.address, bytes, block_word(replay, block),
                              block_stream(replay, block));
        if (status != VMM_OK)
            return status;
    }
    if (replay->request->verify)
        verify_free(&replay->verify, block);
    replay->places[block] = (struct policy_place){ 0 };
    replay->live_bytes -= bytes;
    uint64_t start = vmm__time_ns();
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
    const struct policy_ops *ops = replay->policy->ops;
    char *text = replay->outcome->reason;

    if (status != VMM_ERR_DEVICE_OOM || trace_op_frees(trace->ops[op]))
        (void)snprintf(text, REPLAY_REASON_BYTES - 64, "%s: %s", vmm_status_name(status),
                       vmm_last_error());
    else if (ops->explain == NULL)
        (void)snprintf(text, REPLAY_REASON_BYTES - 64, "%s", vmm_last_error());
    else
        ops->explain(replay->policy, replay->bytes[trace_op_block(trace->ops[op])], block->stream,
                     text, REPLAY_REASON_BYTES - 64);
    reason_end(replay, op);
}

/* A trim or a compaction. */
struct moment {
    const char *name;
    vmm_status (*call)(struct policy *policy); /* NULL: the policy cannot */
    struct trims *trims;
    struct trims_outcome *outcome;
};

static vmm_status moment_run(struct replay *replay, const struct moment *moment)
{
    vmm_status status = timing_settle(&replay->timing);
    if (status != VMM_OK)
        return status;
    uint64_t driver_ns = vmm__driver_clock_ns(replay->driver);
    uint64_t start = vmm__time_ns();
    status = moment->call(replay->policy);
    timing_call(&replay->timing, start);
    if (status == VMM_OK)
        trims_note(moment->trims, moment->outcome, replay->live_bytes, reserved_bytes(replay),
                   vmm__driver_clock_ns(replay->driver) - driver_ns);
    return status;
}

/* Those that are due after an operation. */
static bool moments_run(struct replay *replay, uint32_t op, const struct moment *moment)
{
    if (moment->call == NULL)
        return true;
    while (trims_due(moment->trims, op)) {
        vmm_status status = moment_run(replay, moment);
        if (status == VMM_OK)
            continue;
        (void)snprintf(replay->outcome->reason, REPLAY_REASON_BYTES - 64, "%s: %s: %s",
                       moment->name, vmm_status_name(status), vmm_last_error());
        reason_end(replay, op);
        return false;
    }
    return true;
}

static bool trims_run(struct replay *replay, uint32_t op)
{
    const struct policy_ops *ops = replay->policy->ops;
    const struct moment moments[] = {
        { "trim", ops->trim, &replay->trims, &replay->outcome->trims },
        { "compact", ops->compact, &replay->compacts, &replay->outcome->compacts },
    };

    return moments_run(replay, op, &moments[0]) && moments_run(replay, op, &moments[1]);
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

/* Draws the sizes of the pass. */
static void sizes_draw(struct replay *replay)
{
    const struct trace *trace = replay->request->trace;

    for (uint32_t i = 0; i < trace->block_count; i++) {
        uint64_t bytes = trace->blocks[i].bytes;
        uint64_t most = replay->pass == 0 ? 0 : bytes * replay->request->jitter / 100;
        replay->bytes[i] = bytes - random_between(&replay->jitter_random, 0, most);
    }
}

static bool pass_run(struct replay *replay)
{
    struct replay_outcome *outcome = replay->outcome;
    struct replay_pass *pass = &outcome->passes[replay->pass];

    timing_pass(&replay->timing);
    trims_pass(&replay->trims);
    trims_pass(&replay->compacts);
    sizes_draw(replay);
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
    outcome->has_stats = replay->policy->ops->stats != NULL &&
                         replay->policy->ops->stats(replay->policy, &outcome->stats) == VMM_OK;
    trims_end(&replay->trims, &outcome->trims);
    trims_end(&replay->compacts, &outcome->compacts);
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
        status = verify_init(&replay->verify, replay->driver, replay->bytes,
                             request->trace->block_count);
        if (status != VMM_OK)
            return status;
    }
    replay->reserved_base = replay->driver->created_bytes;
    return request->policy->open(request->policy, &setup, &replay->policy);
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
    replay->bytes = calloc(request->trace->block_count, sizeof(*replay->bytes));
    replay->streams = calloc(request->trace->stream_count, sizeof(*replay->streams));
    replay->outcome->passes = calloc(request->passes, sizeof(*replay->outcome->passes));
    if (replay->places == NULL || replay->bytes == NULL || replay->streams == NULL ||
        replay->outcome->passes == NULL ||
        !trims_init(&replay->trims, request->trims, request->trace->op_count, request->passes) ||
        !trims_init(&replay->compacts, request->compacts, request->trace->op_count,
                    request->passes) ||
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
        .jitter_random = JITTER_SEED,
    };

    *outcome = (struct replay_outcome){
        .ops = request->trace->op_count,
        .peak_live_bytes = request->trace->peak_live_bytes,
        .peak_busy_bytes = trace_peak_busy(request->trace, request->lag),
        .lower_bound_bytes = request->trace->peak_live_bytes,
    };
    if (request->timeline != NULL)
        *request->timeline = (struct timeline){ .ops = outcome->ops * request->passes };
    replay_do(&replay);
    if (replay.streams != NULL)
        streams_destroy(&replay);
    verify_fini(&replay.verify);
    trims_fini(&replay.compacts);
    trims_fini(&replay.trims);
    free(replay.streams);
    free(replay.bytes);
    free(replay.places);
}

void replay_outcome_free(struct replay_outcome *outcome)
{
    free(outcome->passes);
    outcome->passes = NULL;
}
