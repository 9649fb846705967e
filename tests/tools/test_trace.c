/*
 * The trace reader: what it accepts, and that everything broken or hostile is refused with a line
 * that names file and line.
 */
#include "fragtest_support.h"

#include <stdlib.h>
#include <zlib.h>

/* ---- Accepted -------------------------------------------------------------------------------- */

TEST(test_reads_operations)
{
    struct trace trace = test_trace("# a comment\n"
                                    "+ 7 1000 3\n"
                                    "\n"
                                    "+ 18446744073709551615 24 0\r\n"
                                    "- 7\n"
                                    "+ 7 5000 3");
    assert_int_equal(trace.op_count, 4);
    assert_int_equal(trace.block_count, 3);
    assert_int_equal(trace.stream_count, 2);
    assert_int_equal(trace.blocks[0].stream, 0);
    assert_int_equal(trace.blocks[1].stream, 1);
    assert_int_equal(trace.stream_numbers[3], 1);
    assert_int_equal(trace.stream_numbers[0], 2);
    assert_true(trace_op_frees(trace.ops[2]));
    assert_int_equal(trace_op_block(trace.ops[2]), 0);
    assert_int_equal(trace_op_block(trace.ops[3]), 2);
    assert_int_equal(trace.peak_live_bytes, 5024);
    assert_int_equal(trace.live_count, 2);
    trace_free(&trace);
}

/* The example of docs/trace-format.md is a trace, and what the page says of it is so. */
TEST(test_reads_the_documented_example)
{
    static char page[1 << 16];
    FILE *file = fopen(VMM_TEST_DATA_DIR "/../../docs/trace-format.md", "r");

    assert_non_null(file);
    page[fread(page, 1, sizeof(page) - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
    char *example = strstr(page, "```trace\n");
    assert_non_null(example);
    example += strlen("```trace\n");
    char *end = strstr(example, "```");
    assert_non_null(end);
    *end = '\0';
    struct trace trace = test_trace(example);
    assert_int_equal(trace.op_count, 5);
    assert_int_equal(trace.block_count, 3);
    assert_int_equal(trace.stream_count, 2);
    assert_int_equal(trace.peak_live_bytes, 7340032);
    assert_int_equal(trace.live_bytes, 1048576);
    assert_true(trace.blocks[2].live);
    trace_free(&trace);
}

TEST(test_name_is_the_file)
{
    struct test_path path = test_path("gnn.trace.gz");
    struct trace trace;
    struct trace_error error;
    gzFile file = gzopen(path.text, "wb");

    assert_true(gzputs(file, "+ 1 2 0\n") > 0);
    assert_int_equal(gzclose(file), Z_OK);
    assert_true(trace_read(path.text, &trace, &error));
    assert_string_equal(trace.name, "test_trace.gnn");
    assert_int_equal(trace.op_count, 1);
    trace_free(&trace);
    (void)unlink(path.text);
}

TEST(test_name_is_one_line)
{
    struct test_path path = test_path("a\nb.trace");
    struct trace trace;
    struct trace_error error;
    FILE *file = fopen(path.text, "w");

    assert_non_null(file);
    assert_true(fputs("+ 1 2 0\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_true(trace_read(path.text, &trace, &error));
    assert_string_equal(trace.name, "test_trace.a?b");
    trace_free(&trace);
    (void)unlink(path.text);
}

TEST(test_largest_block)
{
    struct trace trace = test_trace("+ 1 70368744177664 1023\n");
    assert_true(trace.peak_live_bytes == TRACE_MAX_BYTES);
    trace_free(&trace);
}

/* ---- Refused --------------------------------------------------------------------------------- */

struct refusal {
    const char *text;
    unsigned line;
    const char *part;
};

static const struct refusal refusals[] = {
    { "", 1, "no operations" },
    { "# nothing\n\n", 3, "no operations" },
    { "+ 1 8 0\n- 1\n- 1\n", 3, "id 1 is freed but not live" },
    { "- 99\n", 1, "id 99 is freed but not live" },
    { "+ 1 8 0\n+ 1 8 0\n", 2, "id 1 is allocated while it is live" },
    { "+ 1 0 0\n", 1, "0 bytes" },
    { "\n+ 1 9223372036854775808 0\n", 2, "more than 2^46" },
    { "+ 1 70368744177665 0\n", 1, "more than 2^46" },
    { "+ 1 18446744073709551616 0\n", 1, "not of the form" },
    { "+ 1 -5 0\n", 1, "not of the form" },
    { "+ 1 0x10 0\n", 1, "not of the form" },
    { "+ 1 8 1024\n", 1, "stream number above 1023" },
    { "+ 1 8 18446744073709551615\n", 1, "stream number above 1023" },
    { "+ 1 8\n", 1, "not of the form" },
    { "+ 1 8 0 4\n", 1, "not of the form" },
    { "+ 1  8 0\n", 1, "not of the form" },
    { "+ 1 8 zero\n", 1, "not of the form" },
    { "+1 8 0\n", 1, "a line starts with" },
    { "+ 1 8 0\n-\n", 2, "a line starts with" },
    { "+ 1 8 0\n- 1 2\n", 2, "not of the form" },
    { "* 1 8 0\n", 1, "a line starts with" },
    { "+ 1 8 0\nPK\003\004\n", 2, "a line starts with" },
};

static void assert_refused(const char *text, size_t length, unsigned line, const char *part)
{
    struct trace trace;
    struct trace_error error;
    char place[32];

    if (test_trace_read(text, length, &trace, &error))
        fail_msg("\"%.40s\" was accepted", text);
    (void)snprintf(place, sizeof(place), "test_trace.trace:%u: ", line);
    assert_contains(error.text, place);
    assert_contains(error.text, part);
    assert_null(strchr(error.text, '\n'));
}

TEST(test_refuses_bad_lines)
{
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
        assert_refused(refusals[i].text, strlen(refusals[i].text), refusals[i].line,
                       refusals[i].part);
}

TEST(test_refuses_zero_bytes_in_text)
{
    static const char text[] = "+ 1 8 0\n- 1\0\n";
    assert_refused(text, sizeof(text) - 1, 2, "a zero byte");
}

TEST(test_refuses_long_lines)
{
    enum { LENGTH = 1 << 20 };
    char *text = malloc(LENGTH);

    assert_non_null(text);
    memset(text, '1', LENGTH);
    memcpy(text, "+ 1 8 0\n+ ", 10);
    assert_refused(text, LENGTH, 2, "a line of more than 255 bytes");
    free(text);
}

/* 2^14 blocks of 2^46 bytes are the most; the next one, of a single byte, is one too many. */
TEST(test_refuses_too_much_live)
{
    enum { BLOCKS = 1 << 14 };
    size_t capacity = BLOCKS * 32 + 32;
    char *text = malloc(capacity);
    size_t used = 0;

    assert_non_null(text);
    for (unsigned i = 0; i < BLOCKS; i++)
        used += (size_t)snprintf(text + used, capacity - used, "+ %u 70368744177664 0\n", i);
    used += (size_t)snprintf(text + used, capacity - used, "+ %u 1 0\n", BLOCKS);
    assert_refused(text, used, BLOCKS + 1, "more than 2^60 bytes live at once");
    free(text);
}

/* ---- Damaged files --------------------------------------------------------------------------- */

enum { PACKED_LINES = 20000, PACKED_BYTES = 1 << 20 };

static unsigned char packed[2 * PACKED_BYTES];

/* A valid trace of many lines, packed; before it a head. Returns how many bytes it has. */
static size_t packed_make(const char *head)
{
    struct test_path path = test_path("packed");
    gzFile out = gzopen(path.text, "wb");

    assert_non_null(out);
    assert_true(gzputs(out, head) >= 0);
    for (unsigned i = 0; i < PACKED_LINES; i++)
        assert_true(gzprintf(out, "+ %u %u 0\n", i, 1 + i * 2654435761U % 1000000) > 0);
    assert_int_equal(gzclose(out), Z_OK);
    FILE *in = fopen(path.text, "rb");
    assert_non_null(in);
    size_t count = fread(packed, 1, PACKED_BYTES, in);
    (void)fclose(in);
    (void)unlink(path.text);
    assert_true(count > 10000 && count < PACKED_BYTES);
    return count;
}

static void packed_refused(size_t count, const char *part)
{
    struct trace trace;
    struct trace_error error;

    assert_false(test_trace_read((char *)packed, count, &trace, &error));
    assert_contains(error.text, part);
}

TEST(test_refuses_truncated_gzip)
{
    size_t count = packed_make("");
    size_t cuts[] = { count - 1, count - 8, count / 2, 100, 12 };

    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++)
        packed_refused(cuts[i], "the gzip data ends too early");
}

/* What the library recorded, of a program that was killed. */
TEST(test_reads_a_cut_recording_to_its_last_whole_line)
{
    struct trace trace;
    struct trace_error error;
    size_t count = packed_make("# recorded by libvmmcache 1\n");
    size_t cuts[] = { count / 4, count / 2, count - 8, count - 1, count };
    uint32_t before = 0;

    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        if (!test_trace_read((char *)packed, cuts[i], &trace, &error))
            fail_msg("%s", error.text);
        assert_int_equal(trace.is_cut, cuts[i] < count);
        assert_true(trace.op_count > before || trace.op_count == PACKED_LINES);
        assert_true(trace.op_count == PACKED_LINES || cuts[i] < count - 8);
        before = trace.op_count;
        trace_free(&trace);
    }
    packed_refused(12, "the gzip data ends too early"); /* it has no head */
}

/* Gzip data may be followed by more gzip data, or by zeros. */
TEST(test_refuses_what_follows_gzip)
{
    struct trace trace;
    struct trace_error error;
    size_t count = packed_make("");

    memset(packed + count, 0, 600);
    assert_true(test_trace_read((char *)packed, count + 600, &trace, &error));
    trace_free(&trace);
    memcpy(packed + count + 600, "+ 1 1 0\n", 8);
    packed_refused(count + 608, "damaged gzip data (something else follows)");
    memcpy(packed + count, packed, count);
    packed_refused(2 * count, "id 0 is allocated while it is live"); /* it was read */
    packed_refused(2 * count - 1, "");
}

/* Every damaged byte is noticed: by the lines, by the packed data or by its checksum. */
TEST(test_refuses_damaged_gzip)
{
    size_t count = packed_make("");

    for (size_t at = 20; at < count; at += count / 50) {
        packed[at] ^= 0x55;
        packed_refused(count, "test_trace.trace:");
        packed[at] ^= 0x55;
    }
}

TEST(test_refuses_missing_file_and_folder)
{
    struct trace trace;
    struct trace_error error;

    assert_false(trace_read("/no/such/file", &trace, &error));
    assert_contains(error.text, "/no/such/file:1: cannot open: ");
    assert_false(trace_read("/", &trace, &error));
    assert_contains(error.text, "cannot ");
}

/* ---- Hostile size ---------------------------------------------------------------------------- */

/* The reader adds what it reads, and ends at the first refusal. */
TEST(test_refuses_too_many_live_blocks)
{
    static const char refusal[] = "more blocks live at once than a trace may have (2^22)";
    struct trace trace;
    uint32_t block;

    assert_true(trace_init(&trace, "many"));
    for (unsigned i = 0; i < TRACE_MAX_LIVE; i++)
        assert_null(trace_add_alloc(&trace, 512, 0, &block));
    assert_string_equal(trace_add_alloc(&trace, 512, 0, &block), refusal);
    assert_int_equal(trace.op_count, TRACE_MAX_LIVE);
    assert_null(trace_add_free(&trace, 7));
    assert_null(trace_add_alloc(&trace, 512, 0, &block));
    assert_string_equal(trace_add_alloc(&trace, 512, 0, &block), refusal);
    trace_free(&trace);
}
