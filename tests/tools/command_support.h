/*
 * What the tests of the program fragtest share: running it as scripts do.
 */
#ifndef COMMAND_SUPPORT_H
#define COMMAND_SUPPORT_H

#include "fragtest_support.h"

#include <glob.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { OUTPUT_BYTES = 1 << 16 };

struct run {
    char output[OUTPUT_BYTES];
    int code;
};

static struct run ran; /* the last one */

/* A text; valid until the next one. */
__attribute__((format(printf, 1, 2))) static inline const char *line_of(const char *format, ...)
{
    static char line[16384];
    va_list arguments;

    va_start(arguments, format);
    assert_in_range(vsnprintf(line, sizeof(line), format, arguments), 0, sizeof(line) - 1);
    va_end(arguments);
    return line;
}

/* The fragtest that was built beside this test. */
static inline struct test_path program_path(void)
{
    struct test_path path = test_path("");

    (void)strcpy(strrchr(path.text, '/'), "/../bin/fragtest");
    return path;
}

/* Runs it; `rest` is the command line after its name. */
static inline void command_run(const char *rest)
{
    char command[24000];

    (void)snprintf(command, sizeof(command), "FRAGTEST='%s'; \"$FRAGTEST\" %s", program_path().text,
                   rest);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    size_t length = fread(ran.output, 1, OUTPUT_BYTES - 1, out);
    ran.output[length] = '\0';
    int status = pclose(out);
    assert_true(WIFEXITED(status));
    ran.code = WEXITSTATUS(status);
}

/* Becomes it, in a child, by way of a shell; returns only on failure. */
static inline void program_exec(const char *rest)
{
    char command[24000];

    (void)snprintf(command, sizeof(command), "exec '%s' %s", program_path().text, rest);
    (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
}

/* How many files there are whose paths begin so: a file, and what is to become it. */
static inline size_t files_count(const char *path)
{
    glob_t found;
    size_t count = glob(line_of("%s*", path), 0, NULL, &found) == 0 ? found.gl_pathc : 0;

    globfree(&found);
    return count;
}

static inline void command_expect(const char *rest, int code)
{
    command_run(rest);
    if (ran.code != code)
        fail_msg("fragtest %s: ended with %d, not %d:\n%s", rest, ran.code, code, ran.output);
}

/* Bad usage and bad traces: one line, and nothing else. */
static inline void command_refuse(const char *rest, const char *part)
{
    char line[16400];

    (void)snprintf(line, sizeof(line), "%s 2>&1", rest);
    command_expect(line, 2);
    assert_contains(ran.output, part);
    assert_int_equal(strncmp(ran.output, "fragtest: ", 10), 0);
    assert_int_equal(strcspn(ran.output, "\n"), strlen(ran.output) - 1);
}

#endif
