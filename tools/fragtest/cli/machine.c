/* The machine in a line: see machine.h. */
#include "fragtest/cli/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Linux names the model on x86 only; elsewhere the architecture has to do. */
static void cpu_describe(char *text, size_t capacity)
{
    static const char key[] = "model name";
    struct utsname names;
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");

    (void)snprintf(text, capacity, "%s", uname(&names) == 0 ? names.machine : "unknown CPU");
    if (file == NULL)
        return;
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *value = strstr(line, ": ");
        if (strncmp(line, key, sizeof(key) - 1) != 0 || value == NULL)
            continue;
        (void)snprintf(text, capacity, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
        break;
    }
    (void)fclose(file);
}

void machine_describe(const struct driver *driver, char *text, size_t capacity)
{
    char cpu[160];

    cpu_describe(cpu, sizeof(cpu));
    (void)snprintf(text, capacity, "%s, %ld CPUs; %s%s%s", cpu, sysconf(_SC_NPROCESSORS_ONLN),
                   driver->device_name, driver->version[0] == '\0' ? "" : "; driver ",
                   driver->version);
}
