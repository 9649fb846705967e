/*
 * What the tests of fragtest share: traces made from text, temporary files, and files whose text is compared.
 *
 * Files lie in the folder of the running test program and are named after it, so that tests may run
 * beside each other.
 */
#ifndef FRAGTEST_SUPPORT_H
#define FRAGTEST_SUPPORT_H

#include "support/test_support.h"

#include "fragtest/trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct test_path {
    char text[4096];
};

/* "<this program>.<ending>" */
static inline struct test_path test_path(const char *ending)
{
    struct test_path path;
    ssize_t length = readlink("/proc/self/exe", path.text, sizeof(path.text) - 64);

    assert_true(length > 0);
    (void)snprintf(path.text + length, 64, ".%s", ending);
    return path;
}

static inline void test_file_write(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* Reads a trace that consists of this text. */
static inline bool test_trace_read(const char *text, size_t length, struct trace *trace,
                                   struct trace_error *error)
{
    struct test_path path = test_path("trace");

    test_file_write(path.text, text, length);
    bool ok = trace_read(path.text, trace, error);
    (void)unlink(path.text);
    return ok;
}

/* The same, for a trace that must be accepted. */
static inline struct trace test_trace(const char *text)
{
    struct trace trace;
    struct trace_error error;

    if (!test_trace_read(text, strlen(text), &trace, &error))
        fail_msg("%s", error.text);
    return trace;
}

static struct {
    FILE *out;
    char *text;
    size_t length;
} written;

/* A file whose text write_end() returns; it is valid until the next one. */
static inline FILE *write_begin(void)
{
    free(written.text);
    written.out = open_memstream(&written.text, &written.length);
    assert_non_null(written.out);
    return written.out;
}

static inline const char *write_end(void)
{
    assert_int_equal(fclose(written.out), 0);
    return written.text;
}

/* The most columns of a line, escape codes not counted. */
static inline unsigned widest_line(const char *text)
{
    unsigned widest = 0;
    unsigned columns = 0;

    for (; *text != '\0'; text++) {
        if (*text == '\033')
            text += strcspn(text, "m");
        else if (*text == '\n')
            columns = 0;
        else
            columns += ((unsigned char)*text & 0xC0) != 0x80;
        widest = columns > widest ? columns : widest;
    }
    return widest;
}

static inline void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

#endif
