/* Zeros, records and guards: nothing is found that is no misuse, and what is one is told. See engine.h. */
#define _GNU_SOURCE
#include "engine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Settings -------------------------------------------------------------------------------- */

static void misuse_told(void *context, const char *line)
{
    struct engine *engine = context;
    engine->misuse.told++;
    (void)snprintf(engine->misuse.line, sizeof engine->misuse.line, "%s", line);
}

/* Zeros, one in eight; records, one in four; a guard, one in eight. Small numbers mean neither. */
void engine_guard_draw(struct engine *engine, unsigned drawn)
{
    static const vmm_guard guards[] = { VMM_GUARD_OFF, VMM_GUARD_OFF, VMM_GUARD_RECORD,
                                        VMM_GUARD_ON };
    vmm_config *config = &engine->config;
    config->zero = drawn % 8 == 7;
    config->guard = guards[drawn / 8 % 4];
    if (config->guard == VMM_GUARD_ON && drawn % 2 == 0)
        config->guard = VMM_GUARD_OFF;
    config->misuse = config->guard != VMM_GUARD_OFF ? misuse_told : NULL;
    config->misuse_context = engine;
}

/* ---- Zeros ----------------------------------------------------------------------------------- */

static bool bytes_are_zero(const unsigned char *bytes, size_t count)
{
    return count == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0);
}

/* Its beginning, its middle and its end. */
void engine_zeros_verify(struct engine *engine, const struct model_block *block)
{
    enum { PART_BYTES = 2048, PARTS = 3 };
    static unsigned char found[PARTS][PART_BYTES];
    uint64_t bytes = block->requested_bytes;
    uint64_t part = bytes < PART_BYTES ? bytes : PART_BYTES;
    if (engine->config.zero == 0 || bytes == 0 || engine->is_lost)
        return;
    const struct driver_piece pieces[PARTS] = {
        { block->address, part, found[0] },
        { block->address + (bytes - part) / 2, part, found[1] },
        { block->address + bytes - part, part, found[2] },
    };
    engine_expect_ok(
        engine, "read",
        vmm__driver_read(engine->driver, pieces, PARTS, engine->streams[block->stream]));
    for (unsigned i = 0; i < PARTS; i++) {
        if (!bytes_are_zero(found[i], part))
            engine_trouble(engine, "zero: %#" PRIx64 " of %" PRIu64 " bytes holds others' bytes",
                           block->address, bytes);
    }
}

/* ---- Misuse ---------------------------------------------------------------------------------- */

void engine_misuse_noted(struct engine *engine)
{
    struct engine_misuse *misuse = &engine->misuse;
    if (engine->config.guard == VMM_GUARD_OFF)
        return;
    if (!misuse->is_known && strcmp(misuse->line, vmm_last_error()) != 0)
        engine_trouble(engine, "guard: told of a misuse with another line than the error's");
    misuse->is_known = true;
    (void)snprintf(misuse->line, sizeof misuse->line, "%s", vmm_last_error());
    if (misuse->told != 1)
        engine_trouble(engine, "guard: the program was told %u times of a first misuse",
                       misuse->told);
}

void engine_misuse_none(struct engine *engine)
{
    const struct engine_misuse *misuse = &engine->misuse;
    if (!misuse->is_known && misuse->told != 0)
        engine_trouble(engine, "guard: told of a misuse where there was none: %s", misuse->line);
}

/* All use is legal: whatever is found is not there. */
void operation_guard_check(struct engine *engine, const struct operation *operation)
{
    (void)operation;
    (void)engine_call(engine, "vmm_guard_check", vmm_guard_check);
}

/* The story of the last one, or that there was none. */
void operation_misuse_write(struct engine *engine, const struct operation *operation)
{
    const struct engine_misuse *misuse = &engine->misuse;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    (void)operation;
    if (out == NULL)
        return;
    engine_enter(engine);
    vmm_status status = vmm_misuse_write(engine->cache, out);
    engine_leave(engine);
    (void)fclose(out);
    const char *wanted = misuse->is_known ? misuse->line : "no misuse was found";
    if (engine_expect(engine, "vmm_misuse_write", status, STATUS_BIT(OK), 0) &&
        strstr(text, wanted) == NULL)
        engine_trouble(engine, "misuse: the story is not that of: %s", wanted);
    free(text);
}
