/* Statuses, the thread's last error, and statistics. */
#define _GNU_SOURCE
#include "support/thread_support.h"

#include "base/error.h"
#include "base/stat.h"

#include <string.h>

TEST(every_status_has_a_name_and_a_text)
{
#define STATUS_NAMED(name, value, text)                                                            \
    assert_int_equal(VMM_##name, value);                                                           \
    assert_string_equal(vmm_status_name(VMM_##name), "VMM_" #name);                                \
    assert_string_equal(vmm_status_text(VMM_##name), text);
    VMM_STATUS_MAP(STATUS_NAMED)
#undef STATUS_NAMED
    assert_int_equal(VMM_OK, 0);
    assert_non_null(vmm_status_name((vmm_status)99));
    assert_non_null(vmm_status_text((vmm_status)-1));
}

TEST(last_error_is_saved_and_restored)
{
    assert_string_equal(vmm_last_error(), "");
    assert_int_equal(vmm__error(VMM_ERR_DRIVER, "call %d failed", 7), VMM_ERR_DRIVER);
    assert_string_equal(vmm_last_error(), "call 7 failed");
    struct error_line line;
    vmm__error_save(&line);
    (void)vmm__error(VMM_ERR_LOST, "lost");
    assert_string_equal(vmm_last_error(), "lost");
    vmm__error_restore(&line);
    assert_string_equal(vmm_last_error(), "call 7 failed");
}

static void fail_quietly(void)
{
    VMM_QUIET();
    (void)vmm__error(VMM_ERR_LOST, "lost");
    assert_string_equal(vmm_last_error(), "lost");
}

TEST(a_quiet_block_leaves_the_line)
{
    (void)vmm__error(VMM_ERR_DRIVER, "before");
    fail_quietly();
    assert_string_equal(vmm_last_error(), "before");
}

TEST(a_call_that_succeeds_leaves_the_line)
{
    (void)vmm__error(VMM_ERR_DRIVER, "before");
    struct error_line line;
    vmm__error_save(&line);
    (void)vmm__error(VMM_ERR_LOST, "lost");
    assert_int_equal(vmm__error_end(&line, VMM_ERR_LOST), VMM_ERR_LOST);
    assert_string_equal(vmm_last_error(), "lost");
    assert_int_equal(vmm__error_end(&line, VMM_OK), VMM_OK);
    assert_string_equal(vmm_last_error(), "before");
}

TEST(an_error_may_quote_the_last_one)
{
    (void)vmm__error(VMM_ERR_DRIVER, "inner");
    (void)vmm__error(VMM_ERR_DRIVER, "outer: %s", vmm_last_error());
    assert_string_equal(vmm_last_error(), "outer: inner");
}

TEST(long_errors_are_cut)
{
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)vmm__error(VMM_ERR_DRIVER, "%s", text);
    assert_int_equal(strlen(vmm_last_error()), ERROR_LINE_BYTES - 1);
}

TEST(quoted_text_breaks_no_line)
{
    (void)vmm__error(VMM_ERR_DRIVER, "VMM_LIMIT=%s", "one\ntwo\r\t\x1b[2J\x7f\xc3\xa4");
    assert_string_equal(vmm_last_error(), "VMM_LIMIT=one?two???[2J?\xc3\xa4");
}

static void *other_main(void *context)
{
    (void)context;
    const char *text = vmm_last_error();
    bool was_empty = *text == '\0';
    (void)vmm__error(VMM_ERR_LOST, "other thread");
    return was_empty ? NULL : "not empty";
}

TEST(each_thread_has_its_own_error)
{
    (void)vmm__error(VMM_ERR_DRIVER, "mine");
    assert_null(thread_run(other_main, NULL));
    assert_string_equal(vmm_last_error(), "mine");
}

/* ---- Statistics ----------------------------------------------------------------------------------
 */

TEST(stats_count)
{
    struct atomic_stat stat = { 0 };
    vmm__stat_add(&stat, 10);
    vmm__stat_subtract(&stat, 4);
    vmm__stat_add(&stat, 1);
    vmm_stat read = vmm__stat_read(&stat);
    assert_int_equal(read.current, 7);
    assert_int_equal(read.peak, 10);
    assert_int_equal(read.allocated, 11);
    assert_int_equal(read.freed, 4);
    vmm__stat_reset_peak(&stat);
    assert_int_equal(vmm__stat_read(&stat).peak, 7);
}

static void *adder_main(void *context)
{
    struct atomic_stat *stat = context;
    for (int i = 0; i < 200000; i++) {
        vmm__stat_add(stat, 3);
        vmm__stat_subtract(stat, 3);
    }
    return NULL;
}

/* While other threads add, allocated and peak are never below current. */
TEST(reads_are_consistent_while_others_add)
{
    struct atomic_stat stat = { 0 };
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, adder_main, &stat), 0);
    unsigned wrong = 0;
    for (int i = 0; i < 300000; i++) {
        vmm_stat read = vmm__stat_read(&stat);
        wrong += read.current > read.peak || read.freed > read.allocated;
        if (i % 100 == 0)
            vmm__stat_reset_peak(&stat);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(wrong, 0);
    vmm_stat end = vmm__stat_read(&stat);
    assert_int_equal(end.current, 0);
    assert_int_equal(end.allocated, 3 * 3 * 200000);
    assert_int_equal(end.freed, end.allocated);
}
