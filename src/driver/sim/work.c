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

/* The part of a range under one mapping, or a part under none. */
struct sim_piece {
    struct sim_mapping *mapping; /* NULL: not mapped */
    uint64_t place;              /* within the range */
    uint64_t offset;             /* within the handle */
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

/* Sets *piece to the piece of [address, address + bytes) that begins at `place`; false at the end. */
static bool piece_at(struct sim *sim, uint64_t address, uint64_t bytes, uint64_t place,
                     struct sim_piece *piece)
{
    if (place >= bytes)
        return false;
    uint64_t at = address + place;
    uint64_t left = bytes - place;
    struct soft_reservation *reservation = vmm__soft_reservation_at(&sim->soft.space, at);
    struct soft_mapping *mapping = reservation != NULL ? *soft_granule(reservation, at) : NULL;
    *piece = (struct sim_piece){ .mapping = (struct sim_mapping *)mapping, .place = place };
    if (mapping == NULL) {
        piece->bytes = vmm__min(left, gap_bytes(reservation, at));
        return true;
    }
    piece->offset = at - mapping->address;
    piece->bytes = vmm__min(left, mapping->bytes - piece->offset);
    return true;
}

static struct sim_shadow *piece_shadow(const struct sim *sim, const struct sim_piece *piece)
{
    struct sim_handle *handle = sim_handle_of(&piece->mapping->soft);
    return handle->share != NULL ? vmm__sim_share_shadow(sim, handle->share) : &handle->shadow;
}

/* Records that the work accesses the piece; false: out of host memory. */
static bool piece_touch(struct sim *sim, struct sim_work *work, const struct sim_piece *piece)
{
    if (piece->mapping == NULL) {
        work_report_place(sim, work, piece->place, "is not mapped");
        return true;
    }
    if (!piece->mapping->soft.accessible)
        work_report_place(sim, work, piece->place, "is mapped without access");
    return vmm__sim_users_add(&piece->mapping->users, sim->order.observed, work->epoch);
}

static bool piece_write(struct sim *sim, struct sim_work *work, const struct sim_piece *piece,
                        uint64_t skip, uint64_t bytes, struct sim_content content)
{
    uint64_t conflict = 0;
    if (!vmm__sim_shadow_write(piece_shadow(sim, piece), work, piece->offset + skip, bytes, content,
                               &conflict))
        return false;
    work_report_race(sim, work, piece->place + skip, conflict);
    return true;
}

static bool piece_read(struct sim *sim, struct sim_work *work, const struct sim_piece *piece,
                       uint32_t *first, uint32_t *last)
{
    uint64_t conflict = 0;
    if (!vmm__sim_shadow_read(piece_shadow(sim, piece), work, piece->offset, piece->bytes, first,
                              last, &conflict))
        return false;
    work_report_race(sim, work, piece->place, conflict);
    return true;
}

/* ---- Fill ------------------------------------------------------------------------------------ */

static vmm_status work_submit(struct sim *sim, struct sim_work *work, vmm_stream stream)
{
    uint64_t end;
    if (!vmm__add_checked(work->address, work->bytes, &end))
        return vmm__error(VMM_ERR_DRIVER,
                          "sim: %s of %" PRIu64 " bytes at %#" PRIx64 ": exceeds the address space",
                          work->verb, work->bytes, work->address);
    return vmm__sim_work_submit(sim, stream, work);
}

static vmm_status work_begin(struct sim *sim, struct sim_work *work, const char *verb,
                             uint64_t address, uint64_t bytes, vmm_stream stream)
{
    *work = (struct sim_work){ .verb = verb, .address = address, .bytes = bytes };
    return work_submit(sim, work, stream);
}

/* Writes contents to the work's range; places count from its first byte. */
static bool content_write(struct sim *sim, struct sim_work *work, struct sim_content content)
{
    struct sim_piece piece = { 0 };
    while (piece_at(sim, work->address, work->bytes, piece.place + piece.bytes, &piece)) {
        content.place = piece.place;
        if (!piece_touch(sim, work, &piece))
            return false;
        if (piece.mapping != NULL && !piece_write(sim, work, &piece, 0, piece.bytes, content))
            return false;
    }
    return true;
}

vmm_status vmm__sim_fill(struct sim *sim, uint64_t address, uint64_t bytes, uint32_t word,
                         vmm_stream stream)
{
    struct sim_work work;
    vmm_status status = work_begin(sim, &work, "fill", address, bytes, stream);
    if (status != VMM_OK)
        return status;
    struct sim_content content = { .word = word, .known = true };
    return content_write(sim, &work, content) ? VMM_OK : work_report_no_memory(sim, &work);
}

/* On a stream under capture a clear becomes part of a graph, which is never launched. */
vmm_status vmm__sim_clear(struct sim *sim, uint64_t address, uint64_t bytes, uint8_t value,
                          vmm_stream stream)
{
    struct sim_work work;
    const struct soft_stream *known = soft_stream_find(&sim->soft.streams, stream);
    soft_charge(&sim->soft, DRIVER_CALL_clear, bytes, NULL);
    if (known != NULL && known->is_captured)
        return VMM_OK;
    vmm_status status = work_begin(sim, &work, "clear", address, bytes, stream);
    if (status != VMM_OK)
        return status;
    struct sim_content content = { .word = value, .is_set = true };
    return content_write(sim, &work, content) ? VMM_OK : work_refuse_no_memory(&work);
}

/* ---- Read ------------------------------------------------------------------------------------ */

/* Receives a run of bytes that work reads, all of one content; NULL: they are not mapped. False: out of host memory. */
typedef bool (*run_fn)(void *context, uint64_t place, uint64_t bytes,
                       const struct sim_content *content);

/* Calls `visit` for each run of the work's range. */
static bool content_read(struct sim *sim, struct sim_work *work, run_fn visit, void *context)
{
    struct sim_piece piece = { 0 };
    uint32_t first;
    uint32_t last;
    while (piece_at(sim, work->address, work->bytes, piece.place + piece.bytes, &piece)) {
        if (!piece_touch(sim, work, &piece))
            return false;
        if (piece.mapping == NULL) {
            if (!visit(context, piece.place, piece.bytes, NULL))
                return false;
            continue;
        }
        if (!piece_read(sim, work, &piece, &first, &last))
            return false;
        for (uint32_t index = first; index < last; index++) {
            const struct sim_interval *item = &piece_shadow(sim, &piece)->items[index];
            uint64_t place = piece.place + (item->offset - piece.offset);
            if (!visit(context, place, item->bytes, &item->content))
                return false;
        }
    }
    return true;
}

/* For contents that were not cleared, returns bytes that no clear to 0, or to a byte with the upper bit set,
 * produces. */
static bool run_copy_out(void *to, uint64_t place, uint64_t bytes,
                         const struct sim_content *content)
{
    if (content != NULL)
        memset((unsigned char *)to + place, content->is_set ? (int)content->word : 0x55, bytes);
    return true;
}

static vmm_status range_read(struct sim *sim, const struct driver_piece *wanted, vmm_stream stream)
{
    struct sim_work work;
    vmm_status status = work_begin(sim, &work, "read", wanted->address, wanted->bytes, stream);
    if (status != VMM_OK || content_read(sim, &work, run_copy_out, wanted->host))
        return status;
    return work_refuse_no_memory(&work);
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
        status = range_read(sim, &pieces[i], stream);
    return status == VMM_OK && !sim->faults.is_due ? read_wait(sim, stream) : status;
}

/* ---- Check ----------------------------------------------------------------------------------- */

enum { SIM_PLACE_BYTES = 512 }; /* mismatches are counted in units of the smallest block */

struct check {
    struct sim *sim;
    struct sim_work work;
    uint32_t word;
};

static bool run_check(void *context, uint64_t place, uint64_t bytes,
                      const struct sim_content *content)
{
    struct check *check = context;
    struct soft_report *mismatches = &check->sim->soft.mismatches;
    uint64_t places = (bytes + SIM_PLACE_BYTES - 1) / SIM_PLACE_BYTES;
    uint64_t at = check->work.address + place;
    if (content == NULL || !content->known)
        vmm__soft_report_add(mismatches, places,
                             "%#" PRIx64 " should hold place %" PRIu64 " of word %#" PRIx32
                             " but is undefined",
                             at, place, check->word);
    else if (content->word != check->word || content->place != place)
        vmm__soft_report_add(mismatches, places,
                             "%#" PRIx64 " should hold place %" PRIu64 " of word %#" PRIx32
                             " but holds place %" PRIu64 " of word %#" PRIx32,
                             at, place, check->word, content->place, content->word);
    return true;
}

vmm_status vmm__sim_check(struct sim *sim, uint64_t address, uint64_t bytes, uint32_t word,
                          vmm_stream stream)
{
    struct check check = { .sim = sim, .word = word };
    vmm_status status = work_begin(sim, &check.work, "check", address, bytes, stream);
    if (status != VMM_OK || content_read(sim, &check.work, run_check, &check))
        return status;
    return work_report_no_memory(sim, &check.work);
}

/* ---- Delay ----------------------------------------------------------------------------------- */

vmm_status vmm__sim_delay(struct sim *sim, uint64_t ns, vmm_stream stream)
{
    struct sim_work work = { .verb = "delay", .delay_ns = ns };
    return vmm__sim_work_submit(sim, stream, &work);
}

/* ---- Copy ------------------------------------------------------------------------------------ */

static bool run_add(void *context, uint64_t place, uint64_t bytes,
                    const struct sim_content *content)
{
    struct sim_runs *runs = context;
    (void)place;
    if (!vmm__host_array_grow((void **)&runs->items, &runs->capacity, runs->count,
                              sizeof *runs->items))
        return false;
    runs->items[runs->count++] =
        (struct sim_run){ .bytes = bytes,
                          .content = content != NULL ? *content : (struct sim_content){ 0 } };
    return true;
}

/* Writes as much of the runs as fits in the piece, and removes it from the runs. */
static bool runs_write_piece(struct sim *sim, struct sim_work *work, const struct sim_piece *piece,
                             struct sim_run **run)
{
    uint64_t done = 0;
    while (done < piece->bytes) {
        uint64_t bytes = vmm__min(piece->bytes - done, (*run)->bytes);
        if (piece->mapping != NULL && !piece_write(sim, work, piece, done, bytes, (*run)->content))
            return false;
        (*run)->content.place += bytes;
        (*run)->bytes -= bytes;
        if ((*run)->bytes == 0)
            ++*run;
        done += bytes;
    }
    return true;
}

static bool copy_read(struct sim *sim, struct sim_work *work, uint64_t from)
{
    work->address = from;
    sim->runs.count = 0;
    return content_read(sim, work, run_add, &sim->runs);
}

static bool copy_write(struct sim *sim, struct sim_work *work, uint64_t to)
{
    struct sim_piece piece = { 0 };
    struct sim_run *run = sim->runs.items;
    work->address = to;
    while (piece_at(sim, to, work->bytes, piece.place + piece.bytes, &piece)) {
        if (!piece_touch(sim, work, &piece) || !runs_write_piece(sim, work, &piece, &run))
            return false;
    }
    return true;
}

vmm_status vmm__sim_copy(struct sim *sim, uint64_t to, uint64_t from, uint64_t bytes,
                         vmm_stream stream)
{
    struct sim_work work;
    uint64_t end;
    if (!vmm__add_checked(from, bytes, &end))
        return vmm__error(VMM_ERR_DRIVER,
                          "sim: copy of %" PRIu64 " bytes from %#" PRIx64
                          ": exceeds the address space",
                          bytes, from);
    vmm_status status = work_begin(sim, &work, "copy", to, bytes, stream);
    if (status != VMM_OK)
        return status;
    soft_charge(&sim->soft, DRIVER_CALL_copy, bytes, NULL);
    if (copy_read(sim, &work, from) && copy_write(sim, &work, to))
        return VMM_OK;
    return work_refuse_no_memory(&work);
}

/* ---- Save and load --------------------------------------------------------------------------- */

static struct sim_pin *pin_of(const struct sim *sim, const struct driver_piece *piece)
{
    return (struct sim_pin *)vmm__soft_pin_find(&sim->soft, piece->host, piece->bytes);
}

/* Writes the runs to pinned memory. */
static bool pin_write(struct sim *sim, struct sim_work *work, const struct driver_piece *piece)
{
    struct sim_pin *pin = pin_of(sim, piece);
    uint64_t offset = (uint64_t)(uintptr_t)piece->host - pin->soft.address;
    uint64_t place = 0;
    for (uint32_t index = 0; index < sim->runs.count; index++) {
        const struct sim_run *run = &sim->runs.items[index];
        uint64_t conflict = 0;
        if (!vmm__sim_shadow_write(&pin->shadow, work, offset + place, run->bytes, run->content,
                                   &conflict))
            return false;
        work_report_race(sim, work, place, conflict);
        place += run->bytes;
    }
    return true;
}

/* Reads pinned memory into the runs. */
static bool pin_read(struct sim *sim, struct sim_work *work, const struct driver_piece *piece)
{
    struct sim_pin *pin = pin_of(sim, piece);
    uint64_t offset = (uint64_t)(uintptr_t)piece->host - pin->soft.address;
    uint32_t first;
    uint32_t last;
    uint64_t conflict = 0;
    if (!vmm__sim_shadow_read(&pin->shadow, work, offset, piece->bytes, &first, &last, &conflict))
        return false;
    work_report_race(sim, work, 0, conflict);
    for (uint32_t index = first; index < last; index++) {
        const struct sim_interval *item = &pin->shadow.items[index];
        if (!run_add(&sim->runs, item->offset - offset, item->bytes, &item->content))
            return false;
    }
    return true;
}

static vmm_status piece_transfer(struct sim *sim, const struct driver_piece *piece,
                                 vmm_stream stream, bool is_save)
{
    struct sim_work work = { .verb = is_save ? "save" : "load",
                             .address = piece->address,
                             .bytes = piece->bytes,
                             .delay_ns = sim_transfer_ns(piece->bytes) };
    vmm_status status = work_submit(sim, &work, stream);
    if (status != VMM_OK)
        return status;
    soft_charge(&sim->soft, is_save ? DRIVER_CALL_save : DRIVER_CALL_load, piece->bytes, NULL);
    sim->runs.count = 0;
    bool has_room = is_save ? copy_read(sim, &work, piece->address) && pin_write(sim, &work, piece)
                            : pin_read(sim, &work, piece) && copy_write(sim, &work, piece->address);
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
