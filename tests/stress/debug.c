/* Zeros, records and debug mode: each misuse is reported, and nothing else is. See stress.h. */
#include "stress.h"

#include <inttypes.h>
#include <string.h>

/* ---- Settings -------------------------------------------------------------------------------- */

static void misuse_told(void *context, const char *line)
{
    struct stress *stress = context;
    stress->misuse.told++;
    (void)snprintf(stress->misuse.line, sizeof stress->misuse.line, "%s", line);
}

/* Zeros, one in eight; records, one in four; a guard, one in eight. Small numbers mean neither. */
void stress_debug_draw(struct stress *stress, unsigned drawn)
{
    static const vmm_debug_mode debugs[] = { VMM_DEBUG_OFF, VMM_DEBUG_OFF, VMM_DEBUG_RECORD,
                                             VMM_DEBUG_ON };
    vmm_config *config = &stress->config;
    config->zero = drawn % 8 == 7;
    config->debug = debugs[drawn / 8 % 4];
    if (config->debug == VMM_DEBUG_ON && drawn % 2 == 0)
        config->debug = VMM_DEBUG_OFF;
    config->misuse = config->debug != VMM_DEBUG_OFF ? misuse_told : NULL;
    config->misuse_context = stress;
}

/* ---- Zeros ----------------------------------------------------------------------------------- */

static bool bytes_are_zero(const unsigned char *bytes, size_t count)
{
    return count == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0);
}

/* Its beginning, its middle and its end. */
void stress_zeros_verify(struct stress *stress, const struct model_block *block)
{
    enum { PART_BYTES = 2048, PARTS = 3 };
    static unsigned char found[PARTS][PART_BYTES];
    uint64_t bytes = block->requested_bytes;
    uint64_t part = bytes < PART_BYTES ? bytes : PART_BYTES;
    if (stress->config.zero == 0 || bytes == 0 || stress->is_lost)
        return;
    const struct driver_piece pieces[PARTS] = {
        { block->address, part, found[0] },
        { block->address + (bytes - part) / 2, part, found[1] },
        { block->address + bytes - part, part, found[2] },
    };
    stress_expect_ok(
        stress, "read",
        vmm__driver_read(stress->driver, pieces, PARTS, stress->streams[block->stream]));
    for (unsigned i = 0; i < PARTS; i++) {
        if (!bytes_are_zero(found[i], part))
            stress_trouble(stress, "zero: %#" PRIx64 " of %" PRIu64 " bytes holds others' bytes",
                           block->address, bytes);
    }
}

/* ---- Misuse ---------------------------------------------------------------------------------- */

void stress_misuse_noted(struct stress *stress)
{
    struct stress_misuse *misuse = &stress->misuse;
    if (stress->config.debug == VMM_DEBUG_OFF)
        return;
    if (!misuse->is_known && strcmp(misuse->line, vmm_last_error()) != 0)
        stress_trouble(stress, "guard: told of a misuse with another line than the error's");
    misuse->is_known = true;
    (void)snprintf(misuse->line, sizeof misuse->line, "%s", vmm_last_error());
    if (misuse->told != 1)
        stress_trouble(stress, "debug: the first misuse was reported %u times", misuse->told);
}

void stress_misuse_none(struct stress *stress)
{
    const struct stress_misuse *misuse = &stress->misuse;
    if (!misuse->is_known && misuse->told != 0)
        stress_trouble(stress, "guard: told of a misuse where there was none: %s", misuse->line);
}

/* All use is legal: whatever is found is not there. */
void operation_debug_check(struct stress *stress, const struct operation *operation)
{
    (void)operation;
    (void)stress_call(stress, "vmm_debug_check", vmm_debug_check);
}

/* The report of the last one, or that there was none. */
void operation_misuse_write(struct stress *stress, const struct operation *operation)
{
    const struct stress_misuse *misuse = &stress->misuse;
    (void)operation;
    stress_text_verify(stress, "vmm_debug_report", vmm_debug_report,
                       misuse->is_known ? misuse->line : "no misuse was found");
}
