/* Canaries and poison: see internal.h. */
#include "debug/internal.h"

#include <string.h>

/* Programs rarely write these values. As a float or a signed integer each is a large negative number. */
enum { CANARY = 0xCB, POISON = 0xDF };

/* Bytes that must all have one value. */
struct zone {
    uint64_t address;
    uint64_t bytes;
    uint8_t value;
};

static struct zone zone_before(const struct record *record)
{
    uint64_t bytes = vmm__min(record->address - record->inner, DEBUG_FRONT_BYTES);
    return (struct zone){ record->address - bytes, bytes, CANARY };
}

static struct zone zone_within(const struct record *record)
{
    return (struct zone){ record->address, record->bytes, POISON };
}

static struct zone zone_beyond(const struct record *record)
{
    uint64_t end = record->address + record->bytes;
    return (struct zone){ end, record->inner + record->inner_bytes - end, CANARY };
}

static vmm_status zone_write(struct debug *debug, struct zone zone, vmm_stream stream)
{
    if (zone.bytes == 0)
        return VMM_OK;
    return vmm__driver_clear(debug->cache->driver, zone.address, zone.bytes, zone.value, stream);
}

vmm_status vmm__canary_put(struct debug *debug, const struct record *record)
{
    vmm_status status = zone_write(debug, zone_before(record), record->stream);
    return status == VMM_OK ? zone_write(debug, zone_beyond(record), record->stream) : status;
}

vmm_status vmm__canary_poison(struct debug *debug, const struct record *record)
{
    return zone_write(debug, zone_within(record), record->stream);
}

/* Returns the index of the first byte that differs; `bytes` if none does. */
static uint64_t find_difference(const unsigned char *found, uint64_t bytes, uint8_t value)
{
    if (bytes == 0 || (found[0] == value && memcmp(found, found + 1, bytes - 1) == 0))
        return bytes;
    uint64_t i = 0;
    while (found[i] == value)
        i++;
    return i;
}

/* Makes the pieces that read the zones; returns their number. The buffer gets what the zones must have: the sim driver
 * has not mapped the memory of a source, and leaves its bytes as they are. */
static unsigned pieces_make(struct debug *debug, const struct zone *zones, unsigned count,
                            struct driver_piece *pieces)
{
    unsigned used = 0;
    unsigned char *to = debug->buffer;
    for (unsigned i = 0; i < count; to += zones[i++].bytes) {
        memset(to, zones[i].value, zones[i].bytes);
        if (zones[i].bytes > 0)
            pieces[used++] = (struct driver_piece){ zones[i].address, zones[i].bytes, to };
    }
    return used;
}

/* Reads all zones with one wait, then compares them. Together they fit the buffer. */
static vmm_status zones_check(struct debug *debug, const struct zone *zones, unsigned count,
                              vmm_stream stream, uint64_t *wrong)
{
    struct driver_piece pieces[2];
    unsigned used = pieces_make(debug, zones, count, pieces);
    vmm_status status = VMM_OK;
    if (used > 0)
        status = vmm__driver_read(debug->cache->driver, pieces, used, stream);
    const unsigned char *to = debug->buffer;
    for (unsigned i = 0; i < count && status == VMM_OK; to += zones[i++].bytes) {
        uint64_t at = find_difference(to, zones[i].bytes, zones[i].value);
        if (at == zones[i].bytes)
            continue;
        *wrong = zones[i].address + at;
        status = VMM_ERR_CORRUPTED;
    }
    return status;
}

/* Checks a zone that may be larger than the buffer. */
static vmm_status zone_check(struct debug *debug, struct zone zone, vmm_stream stream,
                             uint64_t *wrong)
{
    vmm_status status = VMM_OK;
    for (uint64_t done = 0; done < zone.bytes && status == VMM_OK; done += DEBUG_BUFFER_BYTES) {
        struct zone part = { zone.address + done, vmm__min(zone.bytes - done, DEBUG_BUFFER_BYTES),
                             zone.value };
        status = zones_check(debug, &part, 1, stream, wrong);
    }
    return status;
}

/* Takes the lock, because vmm__records_suspect() may copy the record meanwhile. */
static void doubt_note(struct debug *debug, struct record *record, bool is_doubtful)
{
    if (record->is_doubtful == is_doubtful)
        return;
    VMM_HOLD(&debug->records.lock);
    record->is_doubtful = is_doubtful;
}

/* A read that succeeds ends after all failed reads on the same stream, so the block is no longer doubtful. */
vmm_status vmm__canary_check(struct debug *debug, struct record *record, vmm_stream stream,
                             uint64_t *wrong)
{
    struct zone around[] = { zone_before(record), zone_beyond(record) };
    vmm_status status = zones_check(debug, around, 2, stream, wrong);
    if (status == VMM_OK && record->is_kept && record->is_poison)
        status = zone_check(debug, zone_within(record), stream, wrong);
    if (stream == debug->stream)
        doubt_note(debug, record, status != VMM_OK && status != VMM_ERR_CORRUPTED);
    return status;
}
