/* What fragtest says about itself: see help.h. */
#include "fragtest/cli/help.h"

#include "fragtest/cli/options.h"
#include "fragtest/replay/scene.h"
#include "fragtest/report/wrap.h"
#include "fragtest/trace/workload.h"

#include <string.h>

enum { PLAIN_WIDTH = 80, TEXT_INDENT = 20 };

/* A name, and its text in a column beside it. */
static void entry_write(FILE *out, unsigned width, const char *name, const char *text)
{
    (void)fprintf(out, "  %-*s", TEXT_INDENT - 2, name);
    wrap_write(out, width, TEXT_INDENT, TEXT_INDENT, text);
}

static void synopsis_write(FILE *out, unsigned width)
{
    char text[1024] = "[-h] [--version]";
    size_t used = strlen(text);

    for (unsigned i = 0; i < OPTIONS_COUNT; i++) {
        const struct options_entry *entry = options_entry(i);
        used += (size_t)snprintf(text + used, sizeof(text) - used, " [%s%s%s]", entry->name,
                                 entry->value == NULL ? "" : "=",
                                 entry->value == NULL ? "" : entry->value);
    }
    (void)fputs("fragtest ", out);
    wrap_write(out, width, 9, 9, text);
}

void help_write(FILE *out, unsigned width)
{
    width = width == 0 ? PLAIN_WIDTH : width;
    wrap_write(out, width, 0, 0,
               "Replays the memory requests of a program under a memory limit through several "
               "allocation policies, and shows which policies survive.");
    (void)fputc('\n', out);
    synopsis_write(out, width);
    (void)fputc('\n', out);
    for (unsigned i = 0; i < OPTIONS_COUNT; i++)
        entry_write(out, width, options_entry(i)->name, options_entry(i)->text);
    entry_write(out, width, "--version", "Show the version.");
    entry_write(out, width, "-h, --help", "Show this text.");
    (void)fputs("\nWorkloads:\n", out);
    help_workloads(out, width);
    (void)fputc('\n', out);
    wrap_write(out, width, 0, 0,
               "Without a trace or workload, fragtest runs --trace=" OPTIONS_DEMO_TRACE
               " --memory=" OPTIONS_DEMO_MEMORY " --verify.");
    wrap_write(out, width, 0, 0,
               "Exit status: 0 if vmmcache survived everything (and its data was right), 1 if "
               "not, 2 for bad usage or a bad trace.");
}

void help_workloads(FILE *out, unsigned width)
{
    width = width == 0 ? PLAIN_WIDTH : width;
    for (unsigned i = 0; i < WORKLOAD_COUNT; i++)
        entry_write(out, width, workload_name(i), workload_note(i));
    for (unsigned i = 0; i < SCENES; i++)
        entry_write(out, width, scene_at(i)->listed, scene_at(i)->note);
}

void help_version(FILE *out)
{
    (void)fprintf(out, "fragtest, libvmmcache %s\n", vmm_version());
}
