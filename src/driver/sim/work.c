/*
 * Work of the sim driver: fill, check, copy, clear, read, save, load and delay.
 *
 * Work is never refused because of its addresses: it continues with the parts that are mapped, and misuse that would
 * fail on a GPU is recorded as a violation, at most one for each piece of work. All checks happen at submission; only
 * completion depends on the lag (order.c).
 */
#include "driver/sim/internal.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"

#include <string.h>

/* What work reads or writes: addresses of the device or, with a pin, of pinned memory. */
struct sim_range {
    uint64_t address;
    uint64_t bytes;
    struct sim_pin *pin;
};

/* The part of a range under one mapping or in pinned memory, or a part under none. */
struct sim_piece {
    struct sim_mapping *mapping; /* NULL: not mapped, or pinned */
    struct sim_shadow *shadow;   /* NULL: not mapped */
    uint64_t place;              /* within the range */
    uint64_t offset;             /* within the shadow */
    uint64_t bytes;
};

/* ---- Reports --------------------------------------------------------------------------------- */

static void work_report_place(struct sim *sim, struct sim_work *work, uint64_t place,
                              const char *what)
{
    if (work->is_reported)
        return;
    work->is_reported = true;
    vmm__soft_report_add(&sim->soft.violations, 1,
                         "%s of %" PRIu64 " bytes at %#" PRIx64 " on stream %p accesses %#" PRIx64
                         ", which %s",
                         work->verb, work->bytes, work->address,
                         soft_stream_name(&work->stream->soft), work->address + place, what);
}

static void work_report_race(struct sim *sim, struct sim_work *work, uint64_t place,
                             uint64_t conflict)
{
    if (conflict == 0 || work->is_reported)
        return;
    if (conflict == work->epoch) {
        work_report_place(sim, work, place, "it overwrites through another address or an overlap");
        return;
    }
    const struct sim_stream *other = sim->order.streams[sim_epoch_stream(conflict)];
    work->is_reported = true;
    vmm__soft_report_add(&sim->soft.violations, 1,
                         "%s of %" PRIu64 " bytes at %#" PRIx64 " on stream %p races at %#" PRIx64
                         " with work %" PRIu64 " of stream %p, which it is not ordered after",
                         work->verb, work->bytes, work->address,
                         soft_stream_name(&work->stream->soft), work->address + place,
                         sim_epoch_sequence(conflict), soft_stream_name(&other->soft));
}

/* For calls whose callers see the failure and treat the target as undefined: not a violation. */
static vmm_status work_refuse_no_memory(const struct sim_work *work)
{
    return vmm__error(VMM_ERR_HOST_OOM,
                      "sim: %s of %" PRIu64 " bytes at %#" PRIx64
                      ": out of host memory for its shadow",
                      work->verb, work->bytes, work->address);
}

/* For fill and check: the shadow is incomplete from here on, so record it as a violation. */
static vmm_status work_report_no_memory(struct sim *sim, const struct sim_work *work)
{
    vmm__soft_report_add(&sim->soft.violations, 1,
                         "out of host memory to track a %s: contents are unknown", work->verb);
    return work_refuse_no_memory(work);
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

/* Bytes to the end of the granule or, outside all reservations, without limit. */
static uint64_t gap_bytes(const struct soft_reservation *reservation, uint64_t address)
{
    return reservation != NULL ? SOFT_GRANULE_BYTES - address % SOFT_GRANULE_BYTES : UINT64_MAX;
}

static struct sim_shadow *mapping_shadow(const struct sim *sim, const struct soft_mapping *mapping)
{
    struct sim_handle *handle = sim_handle_of(mapping);
    return handle->share != NULL ? vmm__sim_share_shadow(sim, handle->share) : &handle->shadow;
}

/* The piece that begins at the address and has `left` bytes at most. */
static struct sim_piece device_piece(struct sim *sim, uint64_t address, uint64_t left)
{
    struct soft_reservation *reservation = vmm__soft_reservation_at(&sim->soft.space, address);
    struct soft_mapping *mapping = reservation != NULL ? *soft_granule(reservation, address) : NULL;
    if (mapping == NULL)
        return (struct sim_piece){ .bytes = vmm__min(left, gap_bytes(reservation, address)) };
    uint64_t offset = address - mapping->address;
    return (struct sim_piece){ .mapping = (struct sim_mapping *)mapping,
                               .shadow = mapping_shadow(sim, mapping),
                               .offset = offset,
                               .bytes = vmm__min(left, mapping->bytes - offset) };
}

/* Advances to the next piece of the range, from an empty one to the first; false at the end. */
static bool piece_next(struct sim *sim, const struct sim_range *range, struct sim_piece *piece)
{
    uint64_t place = piece->place + piece->bytes;
    uint64_t at = range->address + place;
    if (place >= range->bytes)
        return false;
    if (range->pin != NULL)
        *piece = (struct sim_piece){ .shadow = &range->pin->shadow,
                                     .offset = at - range->pin->soft.address,
                                     .bytes = range->bytes };
    else
        *piece = device_piece(sim, at, range->bytes - place);
    piece->place = place;
    return true;
}

/* Records that the work accesses the piece; false: out of host memory. */
static bool piece_touch(struct sim *sim, struct sim_work *work, const struct sim_piece *piece)
{
    if (piece->shadow == NULL)
        work_report_place(sim, work, piece->place, "is not mapped");
    if (piece->mapping == NULL)
        return true;
    if (!piece->mapping->soft.accessible)
        work_report_place(sim, work, piece->place, "is mapped without access");
    return vmm__sim_users_add(&piece->mapping->users, sim->order.observed, work->epoch);
}

/* ---- Ranges ---------------------------------------------------------------------------------- */

/* Reports name the device's memory, not what is pinned. */
static void range_begin(struct sim_work *work, const struct sim_range *range)
{
    if (range->pin == NULL)
        work->address = range->address;
}

/* Writes as much of the runs as the piece has room for, and removes it from them. */
static bool piece_write(struct sim *sim, struct sim_work *work, const struct sim_piece *piece,
                        struct sim_run **run)
{
    for (uint64_t done = 0; done < piece->bytes;) {
        uint64_t bytes = vmm__min(piece->bytes - done, (*run)->bytes);
        uint64_t conflict = 0;
        if (piece->shadow != NULL &&
            !vmm__sim_shadow_write(piece->shadow, work, piece->offset + done, bytes,
                                   (*run)->content, &conflict))
            return false;
        work_report_race(sim, work, piece->place + done, conflict);
        (*run)->content.place += bytes;
        (*run)->bytes -= bytes;
        if ((*run)->bytes == 0)
            ++*run;
        done += bytes;
    }
    return true;
}

/* Writes runs as long as the range to it, and empties them. */
static bool range_write(struct sim *sim, struct sim_work *work, const struct sim_range *range,
                        struct sim_run *runs)
{
    struct sim_piece piece = { 0 };
    range_begin(work, range);
    while (piece_next(sim, range, &piece)) {
        if (!piece_touch(sim, work, &piece) || !piece_write(sim, work, &piece, &runs))
            return false;
    }
    return true;
}

/* Whether a run's content is what the one before it would have if it were longer. */
static bool run_continues(const struct sim_run *last, const struct sim_run *run)
{
    const struct sim_content *before = &last->content;
    const struct sim_content *content = &run->content;
    bool is_alike = last->is_mapped == run->is_mapped && before->known == content->known &&
                    before->is_set == content->is_set && before->word == content->word;
    return is_alike && (!content->known || before->place + last->bytes == content->place);
}

/* Joins runs of one content: else a copy of a copy had ever shorter intervals. */
static bool run_add(struct sim_runs *runs, struct sim_run run)
{
    if (runs->count > 0 && run_continues(&runs->items[runs->count - 1], &run)) {
        runs->items[runs->count - 1].bytes += run.bytes;
        return true;
    }
    if (!vmm__host_array_grow((void **)&runs->items, &runs->capacity, runs->count,
                              sizeof *runs->items))
        return false;
    runs->items[runs->count++] = run;
    return true;
}

static bool piece_read(struct sim *sim, struct sim_work *work, const struct sim_piece *piece)
{
    uint32_t first;
    uint32_t last;
    uint64_t conflict = 0;
    if (piece->shadow == NULL)
        return run_add(&sim->runs, (struct sim_run){ .bytes = piece->bytes });
    if (!vmm__sim_shadow_read(piece->shadow, work, piece->offset, piece->bytes, &first, &last,
                              &conflict))
        return false;
    work_report_race(sim, work, piece->place, conflict);
    for (uint32_t index = first; index < last; index++) {
        const struct sim_interval *item = &piece->shadow->items[index];
        struct sim_run run = { .bytes = item->bytes, .content = item->content, .is_mapped = true };
        if (!run_add(&sim->runs, run))
            return false;
    }
    return true;
}

/* Reads the range into sim->runs; false: out of host memory. */
static bool range_read(struct sim *sim, struct sim_work *work, const struct sim_range *range)
{
    struct sim_piece piece = { 0 };
    range_begin(work, range);
    sim->runs.count = 0;
    while (piece_next(sim, range, &piece)) {
        if (!piece_touch(sim, work, &piece) || !piece_read(sim, work, &piece))
            return false;
    }
    return true;
}

static bool range_copy(struct sim *sim, struct sim_work *work, const struct sim_range *to,
                       const struct sim_range *from)
{
    return range_read(sim, work, from) && range_write(sim, work, to, sim->runs.items);
}

/* ---- Submission ------------------------------------------------------------------------------ */

static vmm_status work_begin(struct sim *sim, struct sim_work *work, const char *verb,
                             const struct sim_range *range, uint64_t delay_ns, vmm_stream stream)
{
    uint64_t end;
    *work = (struct sim_work){
        .verb = verb, .address = range->address, .bytes = range->bytes, .delay_ns = delay_ns
    };
    if (!vmm__add_checked(range->address, range->bytes, &end))
        return vmm__error(VMM_ERR_DRIVER,
                          "sim: %s of %" PRIu64 " bytes at %#" PRIx64 ": exceeds the address space",
                          verb, range->bytes, range->address);
    return vmm__sim_work_submit(sim, stream, work);
}

vmm_status vmm__sim_delay(struct sim *sim, uint64_t ns, vmm_stream stream)
{
    struct sim_work work;
    return work_begin(sim, &work, "delay", &(struct sim_range){ 0 }, ns, stream);
}

/* ---- Fill and clear -------------------------------------------------------------------------- */

vmm_status vmm__sim_fill(struct sim *sim, uint64_t address, uint64_t bytes, uint32_t word,
                         vmm_stream stream)
{
    struct sim_work work;
    const struct sim_range range = { .address = address, .bytes = bytes };
    struct sim_run run = { .bytes = bytes, .content = { .word = word, .known = true } };
    vmm_status status = work_begin(sim, &work, "fill", &range, 0, stream);
    if (status != VMM_OK || range_write(sim, &work, &range, &run))
        return status;
    return work_report_no_memory(sim, &work);
}

/* On a stream under capture a clear becomes part of a graph, which is never launched. */
vmm_status vmm__sim_clear(struct sim *sim, uint64_t address, uint64_t bytes, uint8_t value,
                          vmm_stream stream)
{
    struct sim_work work;
    const struct sim_range range = { .address = address, .bytes = bytes };
    struct sim_run run = { .bytes = bytes, .content = { .word = value, .is_set = true } };
    const struct soft_stream *known = soft_stream_find(&sim->soft.streams, stream);
    soft_charge(&sim->soft, DRIVER_CALL_clear, bytes, NULL);
    if (known != NULL && known->is_captured)
        return VMM_OK;
    vmm_status status = work_begin(sim, &work, "clear", &range, 0, stream);
    if (status != VMM_OK || range_write(sim, &work, &range, &run))
        return status;
    return work_refuse_no_memory(&work);
}

/* ---- Read ------------------------------------------------------------------------------------ */

/* For contents that were not cleared, returns bytes that no clear to 0, or to a byte with the upper bit set,
 * produces. */
static void runs_copy_out(const struct sim_runs *runs, unsigned char *to)
{
    for (uint32_t index = 0; index < runs->count; index++) {
        const struct sim_run *run = &runs->items[index];
        if (run->is_mapped)
            memset(to, run->content.is_set ? (int)run->content.word : 0x55, run->bytes);
        to += run->bytes;
    }
}

static vmm_status piece_copy_out(struct sim *sim, const struct driver_piece *wanted,
                                 vmm_stream stream)
{
    struct sim_work work;
    const struct sim_range range = { .address = wanted->address, .bytes = wanted->bytes };
    vmm_status status = work_begin(sim, &work, "read", &range, 0, stream);
    if (status != VMM_OK)
        return status;
    if (!range_read(sim, &work, &range))
        return work_refuse_no_memory(&work);
    runs_copy_out(&sim->runs, wanted->host);
    return VMM_OK;
}

/* Waits for the copies. */
static vmm_status read_wait(struct sim *sim, vmm_stream stream)
{
    void *event;
    vmm_status status = vmm__soft_event_create(&sim->soft, &event);
    if (status != VMM_OK)
        return status;
    status = vmm__soft_event_record(&sim->soft, event, stream);
    if (status == VMM_OK)
        status = vmm__soft_event_wait(&sim->soft, event);
    (void)vmm__soft_event_destroy(&sim->soft, event);
    soft_charge(&sim->soft, DRIVER_CALL_read, 0, NULL);
    return status;
}

/* One that is made to fail has not waited. */
vmm_status vmm__sim_read(struct sim *sim, const struct driver_piece *pieces, unsigned count,
                         vmm_stream stream)
{
    vmm_status status = VMM_OK;
    for (unsigned i = 0; i < count && status == VMM_OK; i++)
        status = piece_copy_out(sim, &pieces[i], stream);
    return status == VMM_OK && !sim->faults.is_due ? read_wait(sim, stream) : status;
}

/* ---- Check ----------------------------------------------------------------------------------- */

enum { SIM_PLACE_BYTES = 512 }; /* mismatches are counted in units of the smallest block */

static void run_check(struct sim *sim, const struct sim_run *run, uint64_t address, uint64_t place,
                      uint32_t word)
{
    struct soft_report *mismatches = &sim->soft.mismatches;
    const struct sim_content *content = &run->content;
    uint64_t places = (run->bytes + SIM_PLACE_BYTES - 1) / SIM_PLACE_BYTES;
    if (!content->known)
        vmm__soft_report_add(mismatches, places,
                             "%#" PRIx64 " should hold place %" PRIu64 " of word %#" PRIx32
                             " but is undefined",
                             address + place, place, word);
    else if (content->word != word || content->place != place)
        vmm__soft_report_add(mismatches, places,
                             "%#" PRIx64 " should hold place %" PRIu64 " of word %#" PRIx32
                             " but holds place %" PRIu64 " of word %#" PRIx32,
                             address + place, place, word, content->place, content->word);
}

vmm_status vmm__sim_check(struct sim *sim, uint64_t address, uint64_t bytes, uint32_t word,
                          vmm_stream stream)
{
    struct sim_work work;
    const struct sim_range range = { .address = address, .bytes = bytes };
    vmm_status status = work_begin(sim, &work, "check", &range, 0, stream);
    if (status != VMM_OK)
        return status;
    if (!range_read(sim, &work, &range))
        return work_report_no_memory(sim, &work);
    uint64_t place = 0;
    for (uint32_t index = 0; index < sim->runs.count; index++) {
        run_check(sim, &sim->runs.items[index], address, place, word);
        place += sim->runs.items[index].bytes;
    }
    return VMM_OK;
}

/* ---- Copy, save and load --------------------------------------------------------------------- */

vmm_status vmm__sim_copy(struct sim *sim, uint64_t to, uint64_t from, uint64_t bytes,
                         vmm_stream stream)
{
    struct sim_work work;
    uint64_t end;
    const struct sim_range target = { .address = to, .bytes = bytes };
    const struct sim_range source = { .address = from, .bytes = bytes };
    if (!vmm__add_checked(from, bytes, &end))
        return vmm__error(VMM_ERR_DRIVER,
                          "sim: copy of %" PRIu64 " bytes from %#" PRIx64
                          ": exceeds the address space",
                          bytes, from);
    vmm_status status = work_begin(sim, &work, "copy", &target, 0, stream);
    if (status != VMM_OK)
        return status;
    soft_charge(&sim->soft, DRIVER_CALL_copy, bytes, NULL);
    return range_copy(sim, &work, &target, &source) ? VMM_OK : work_refuse_no_memory(&work);
}

static vmm_status piece_transfer(struct sim *sim, const struct driver_piece *piece,
                                 vmm_stream stream, bool is_save)
{
    struct sim_work work;
    const struct sim_range device = { .address = piece->address, .bytes = piece->bytes };
    struct soft_pin *pin = vmm__soft_pin_find(&sim->soft, piece->host, piece->bytes);
    const struct sim_range pinned = { .address = (uint64_t)(uintptr_t)piece->host,
                                      .bytes = piece->bytes,
                                      .pin = (struct sim_pin *)pin };
    vmm_status status = work_begin(sim, &work, is_save ? "save" : "load", &device,
                                   sim_transfer_ns(piece->bytes), stream);
    if (status != VMM_OK)
        return status;
    soft_charge(&sim->soft, is_save ? DRIVER_CALL_save : DRIVER_CALL_load, piece->bytes, NULL);
    bool has_room =
        range_copy(sim, &work, is_save ? &pinned : &device, is_save ? &device : &pinned);
    return has_room ? VMM_OK : work_refuse_no_memory(&work);
}

static vmm_status pieces_transfer(struct sim *sim, const struct driver_piece *pieces,
                                  unsigned count, vmm_stream stream, bool is_save)
{
    vmm_status status = vmm__soft_pins_check(&sim->soft, is_save ? "save" : "load", pieces, count);
    for (unsigned i = 0; i < count && status == VMM_OK; i++)
        status = piece_transfer(sim, &pieces[i], stream, is_save);
    return status;
}

vmm_status vmm__sim_save(struct sim *sim, const struct driver_piece *pieces, unsigned count,
                         vmm_stream stream)
{
    return pieces_transfer(sim, pieces, count, stream, true);
}

vmm_status vmm__sim_load(struct sim *sim, const struct driver_piece *pieces, unsigned count,
                         vmm_stream stream)
{
    return pieces_transfer(sim, pieces, count, stream, false);
}
