/* Reports of misuse: see misuse.h. */
#include "base/callback.h"
#include "debug/debug_mode.h"

#include <stdarg.h>
#include <string.h>

enum { NAME_BYTES = 160, CALL_SITE_BYTES = 320, WHERE_BYTES = 420, REPORT_LINE_BYTES = 512 };

/* ---- Lines ----------------------------------------------------------------------------------- */

/* "by thread 7, 3 operations ago, in f+0x1f (program+0x1234)" */
static void call_site_format(const struct misuse *misuse, const struct call_site *call_site,
                             char *text, size_t bytes)
{
    char name[NAME_BYTES];
    uint64_t ago = misuse->found.operation - call_site->operation;
    vmm__stack_name(call_site->stack.count > 0 ? call_site->stack.frames[0] : NULL, name,
                    sizeof name);
    (void)snprintf(text, bytes, "by thread %ld, %llu operation%s ago, in %.160s", call_site->thread,
                   (unsigned long long)ago, ago == 1 ? "" : "s", name);
}

/* Where an address lies: "3 bytes beyond the end of the block of 512 bytes at 0x302000000200 that was freed by ..." */
static void where_format(const struct misuse *misuse, uint64_t address, bool was_freed, char *text,
                         size_t bytes)
{
    const struct record *record = &misuse->record;
    uint64_t end = record->address + record->bytes;
    const char *where = "inside";
    uint64_t far = address - record->address;
    char call_site[CALL_SITE_BYTES];
    if (address < record->address) {
        where = "before";
        far = record->address - address;
    } else if (address >= end) {
        where = "beyond the end of";
        far = address - end;
    }
    call_site_format(misuse, was_freed ? &record->freed : &record->allocated, call_site,
                     sizeof call_site);
    (void)snprintf(
        text, bytes, "%llu byte%s %s the block of %llu bytes at 0x%llx that was %s %.240s",
        (unsigned long long)far, far == 1 ? "" : "s", where, (unsigned long long)record->bytes,
        (unsigned long long)record->address, was_freed ? "freed" : "allocated", call_site);
}

void vmm__misuse_begin(const struct api_call *call, const struct record *record,
                       struct misuse *misuse)
{
    memset(misuse, 0, sizeof *misuse);
    vmm__records_call_site(&call->cache->debug->records, &misuse->found, call->caller);
    misuse->has_record = record != NULL;
    if (record != NULL)
        misuse->record = *record;
}

void vmm__misuse_format_pointer(const struct api_call *call, uint64_t address,
                                struct misuse *misuse)
{
    const struct record *record = &misuse->record;
    bool was_freed = record->freed.operation != 0;
    char where[WHERE_BYTES];
    if (!misuse->has_record) {
        (void)snprintf(misuse->line.text, sizeof misuse->line.text,
                       "%s: 0x%llx is not an address of this cache's blocks", call->function,
                       (unsigned long long)address);
    } else if (was_freed && address == record->address) {
        call_site_format(misuse, &record->freed, where, sizeof where);
        (void)snprintf(misuse->line.text, sizeof misuse->line.text,
                       "%.32s: 0x%llx, a block of %llu bytes, was freed before %.240s",
                       call->function, (unsigned long long)address,
                       (unsigned long long)record->bytes, where);
    } else {
        where_format(misuse, address, was_freed, where, sizeof where);
        (void)snprintf(misuse->line.text, sizeof misuse->line.text, "%.32s: 0x%llx lies %s",
                       call->function, (unsigned long long)address, where);
    }
}

void vmm__misuse_format_byte(const struct api_call *call, uint64_t address, struct misuse *misuse)
{
    char where[WHERE_BYTES];
    where_format(misuse, address, misuse->record.is_kept, where, sizeof where);
    (void)snprintf(misuse->line.text, sizeof misuse->line.text,
                   "%.32s: the byte at 0x%llx was overwritten, %s", call->function,
                   (unsigned long long)address, where);
}

/* ---- Reports --------------------------------------------------------------------------------- */

/* Where a report goes, line by line. */
struct report_sink {
    vmm_cache *cache; /* to the log of this cache; NULL: to the file */
    FILE *file;
};

static __attribute__((format(printf, 2, 3))) void sink_line(const struct report_sink *sink,
                                                            const char *format, ...)
{
    char line[REPORT_LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (sink->cache != NULL)
        vmm__cache_log(sink->cache, "%s", line);
    else
        (void)fprintf(sink->file, "%s\n", line);
}

static void call_site_write(const struct report_sink *sink, const char *what,
                            const struct call_site *call_site)
{
    char name[NAME_BYTES];
    if (call_site->operation == 0)
        return;
    sink_line(sink, "  %s by thread %ld as operation %llu:", what, call_site->thread,
              (unsigned long long)call_site->operation);
    for (int i = 0; i < call_site->stack.count; i++) {
        vmm__stack_name(call_site->stack.frames[i], name, sizeof name);
        sink_line(sink, "    #%d %s", i, name);
    }
}

static void report_write_text(const struct report_sink *sink, const struct misuse *misuse)
{
    const struct record *record = &misuse->record;
    sink_line(sink, "misuse: %s", misuse->line.text);
    call_site_write(sink, "found", &misuse->found);
    if (!misuse->has_record)
        return;
    sink_line(sink, "  the block: %llu bytes at 0x%llx, stream %p",
              (unsigned long long)record->bytes, (unsigned long long)record->address,
              record->stream);
    call_site_write(sink, "allocated", &record->allocated);
    call_site_write(sink, "freed", &record->freed);
}

void vmm__misuse_note(const struct api_call *call, const struct misuse *misuse)
{
    struct debug *debug = call->cache->debug;
    vmm__mutex_lock(&debug->records.lock);
    debug->misuse.last = *misuse;
    vmm__mutex_unlock(&debug->records.lock);
    if (call->cache->log != NULL || call->cache->log_file != NULL)
        report_write_text(&(struct report_sink){ .cache = call->cache }, misuse);
}

void vmm__misuse_report(struct debug *debug, FILE *out)
{
    struct report_sink sink = { .file = out };
    struct misuse last = { .has_record = false };
    if (debug != NULL) {
        VMM_HOLD(&debug->records.lock);
        last = debug->misuse.last;
    }
    if (last.line.text[0] == '\0')
        sink_line(&sink, "no misuse was found");
    else
        report_write_text(&sink, &last);
}

/* ---- The program's function ------------------------------------------------------------------ */

/* Raises SIGTRAP: a debugger stops here and may continue; without one the process ends. */
static void process_stop(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("int3");
#elif defined(__aarch64__)
    __asm__ volatile("brk #0");
#else
    __builtin_trap();
#endif
}

void vmm__misuse_report_first(const struct api_call *call, const struct error_line *line)
{
    struct debug *debug = call->cache->debug;
    if (atomic_exchange_explicit(&debug->misuse.was_reported, true, memory_order_relaxed))
        return;
    if (debug->misuse.function != NULL) {
        /* The function must not destroy the cache, which this call still uses. */
        struct callback callback;
        vmm__callback_begin(&callback, debug->cache, false);
        debug->misuse.function(debug->misuse.context, line->text);
        vmm__callback_end(&callback);
    }
    if (debug->mode == VMM_DEBUG_STOP)
        process_stop();
}
