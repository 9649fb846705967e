/* Misuse that was found: see misuse.h. */
#include "base/callback.h"
#include "guard/guard.h"

#include <stdarg.h>
#include <string.h>

enum { NAME_BYTES = 160, DEED_BYTES = 320, STORY_LINE_BYTES = 512 };

/* ---- Words ----------------------------------------------------------------------------------- */

/* "by thread 7, 3 operations ago, in f+0x1f (program+0x1234)" */
static void deed_word(const struct misuse *misuse, const struct deed *deed, char *text,
                      size_t bytes)
{
    char name[NAME_BYTES];
    uint64_t ago = misuse->found.operation - deed->operation;
    vmm__stack_name(deed->stack.count > 0 ? deed->stack.frames[0] : NULL, name, sizeof name);
    (void)snprintf(text, bytes, "by thread %ld, %llu operation%s ago, in %.160s", deed->thread,
                   (unsigned long long)ago, ago == 1 ? "" : "s", name);
}

/* Where an address lies, as seen from a block: "3 bytes beyond". */
static void place_word(const struct record *record, uint64_t address, char *text, size_t bytes)
{
    uint64_t end = record->address + record->bytes;
    const char *where = "inside";
    uint64_t far = address - record->address;
    if (address < record->address) {
        where = "before";
        far = record->address - address;
    } else if (address >= end) {
        where = "beyond the end of";
        far = address - end;
    }
    (void)snprintf(text, bytes, "%llu byte%s %s", (unsigned long long)far, far == 1 ? "" : "s",
                   where);
}

void vmm__misuse_begin(const struct guard_call *call, const struct record *record,
                       struct misuse *misuse)
{
    memset(misuse, 0, sizeof *misuse);
    vmm__records_deed(&call->cache->guard->records, &misuse->found, call->caller);
    misuse->has_record = record != NULL;
    if (record != NULL)
        misuse->record = *record;
}

void vmm__misuse_word_pointer(const struct guard_call *call, uint64_t address,
                              struct misuse *misuse)
{
    char *text = misuse->line.text;
    size_t bytes = sizeof misuse->line.text;
    const struct record *record = &misuse->record;
    char deed[DEED_BYTES];
    char place[NAME_BYTES];
    if (!misuse->has_record) {
        (void)snprintf(text, bytes, "%s: 0x%llx is not an address of this cache's blocks",
                       call->function, (unsigned long long)address);
        return;
    }
    bool was_freed = record->freed.operation != 0;
    deed_word(misuse, was_freed ? &record->freed : &record->allocated, deed, sizeof deed);
    place_word(record, address, place, sizeof place);
    if (was_freed && address == record->address)
        (void)snprintf(text, bytes, "%.32s: 0x%llx, a block of %llu bytes, was freed before %.240s",
                       call->function, (unsigned long long)address,
                       (unsigned long long)record->bytes, deed);
    else
        (void)snprintf(
            text, bytes,
            "%.32s: 0x%llx lies %.60s the block of %llu bytes at 0x%llx that was %s %.240s",
            call->function, (unsigned long long)address, place, (unsigned long long)record->bytes,
            (unsigned long long)record->address, was_freed ? "freed" : "allocated", deed);
}

void vmm__misuse_word_byte(const struct guard_call *call, uint64_t address, struct misuse *misuse)
{
    const struct record *record = &misuse->record;
    char deed[DEED_BYTES];
    char place[NAME_BYTES];
    deed_word(misuse, record->is_kept ? &record->freed : &record->allocated, deed, sizeof deed);
    place_word(record, address, place, sizeof place);
    (void)snprintf(
        misuse->line.text, sizeof misuse->line.text,
        "%.32s: the byte at 0x%llx was overwritten, %.60s the block of %llu bytes at 0x%llx "
        "that was %s %.240s",
        call->function, (unsigned long long)address, place, (unsigned long long)record->bytes,
        (unsigned long long)record->address, record->is_kept ? "freed" : "allocated", deed);
}

/* ---- Stories --------------------------------------------------------------------------------- */

/* Who reads a story, line by line. */
struct reader {
    vmm_cache *cache; /* its log; NULL: */
    FILE *file;
};

static __attribute__((format(printf, 2, 3))) void reader_line(const struct reader *reader,
                                                              const char *format, ...)
{
    char line[STORY_LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (reader->cache != NULL)
        vmm__cache_log(reader->cache, "%s", line);
    else
        (void)fprintf(reader->file, "%s\n", line);
}

static void deed_write(const struct reader *reader, const char *what, const struct deed *deed)
{
    char name[NAME_BYTES];
    if (deed->operation == 0)
        return;
    reader_line(reader, "  %s by thread %ld as operation %llu:", what, deed->thread,
                (unsigned long long)deed->operation);
    for (int i = 0; i < deed->stack.count; i++) {
        vmm__stack_name(deed->stack.frames[i], name, sizeof name);
        reader_line(reader, "    #%d %s", i, name);
    }
}

static void story_write(const struct reader *reader, const struct misuse *misuse)
{
    const struct record *record = &misuse->record;
    reader_line(reader, "misuse: %s", misuse->line.text);
    deed_write(reader, "found", &misuse->found);
    if (!misuse->has_record)
        return;
    reader_line(reader, "  the block: %llu bytes at 0x%llx, stream %p",
                (unsigned long long)record->bytes, (unsigned long long)record->address,
                record->stream);
    deed_write(reader, "allocated", &record->allocated);
    deed_write(reader, "freed", &record->freed);
}

void vmm__misuse_note(const struct guard_call *call, const struct misuse *misuse)
{
    struct guard *guard = call->cache->guard;
    vmm__lock_take(&guard->records.lock);
    guard->misuse.last = *misuse;
    vmm__lock_drop(&guard->records.lock);
    if (call->cache->log != NULL || call->cache->log_file != NULL)
        story_write(&(struct reader){ .cache = call->cache }, misuse);
}

void vmm__misuse_write(struct guard *guard, FILE *out)
{
    struct reader reader = { .file = out };
    struct misuse last = { .has_record = false };
    if (guard != NULL) {
        vmm__lock_take(&guard->records.lock);
        last = guard->misuse.last;
        vmm__lock_drop(&guard->records.lock);
    }
    if (last.line.text[0] == '\0')
        reader_line(&reader, "no misuse was found");
    else
        story_write(&reader, &last);
}

/* ---- Telling --------------------------------------------------------------------------------- */

/* A debugger stops here, and may go on; without one the process ends. */
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

void vmm__misuse_tell(const struct guard_call *call, const struct error_line *line)
{
    struct guard *guard = call->cache->guard;
    if (atomic_exchange_explicit(&guard->misuse.was_told, true, memory_order_relaxed))
        return;
    if (guard->misuse.tell != NULL) {
        struct callback callback; /* the call goes on with the cache: it must not end in there */
        vmm__callback_begin(&callback, guard->cache, false);
        guard->misuse.tell(guard->misuse.context, line->text);
        vmm__callback_end(&callback);
    }
    if (guard->mode == VMM_GUARD_STOP)
        process_stop();
}
