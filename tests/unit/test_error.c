/* Statuses, the thread's last error, and figures. */
#include "support/test_support.h"

#include "base/error.h"
#include "base/figure.h"

#include <pthread.h>
#include <string.h>

static void every_status_has_a_name_and_a_text(void **state)
{
    (void)state;
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

static void the_last_error_is_kept(void **state)
{
    (void)state;
    assert_string_equal(vmm_last_error(), "");
    assert_int_equal(vmm__error(VMM_ERR_DRIVER, "call %d failed", 7), VMM_ERR_DRIVER);
    assert_string_equal(vmm_last_error(), "call 7 failed");
    struct error_line line;
    vmm__error_save(&line);
    (void)vmm__error(VMM_ERR_LOST, "gone");
    assert_string_equal(vmm_last_error(), "gone");
    vmm__error_restore(&line);
    assert_string_equal(vmm_last_error(), "call 7 failed");
}

static void long_errors_are_cut(void **state)
{
    (void)state;
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)vmm__error(VMM_ERR_DRIVER, "%s", text);
    assert_in_range(strlen(vmm_last_error()), 200, 600);
}

static void what_is_quoted_breaks_no_line(void **state)
{
    (void)state;
    (void)vmm__error(VMM_ERR_DRIVER, "VMM_LIMIT=%s", "one\ntwo\r\t\x1b[2J\x7f\xc3\xa4");
    assert_string_equal(vmm_last_error(), "VMM_LIMIT=one?two???[2J?\xc3\xa4");
}

static void *other_main(void *context)
{
    (void)context;
    const char *text = vmm_last_error();
    bool was_empty = *text == '\0';
    (void)vmm__error(VMM_ERR_LOST, "of the other thread");
    return was_empty ? NULL : "not empty";
}

static void threads_have_their_own(void **state)
{
    (void)state;
    (void)vmm__error(VMM_ERR_DRIVER, "mine");
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, other_main, NULL), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
    assert_string_equal(vmm_last_error(), "mine");
}

/* ---- Figures ----------------------------------------------------------------------------------
 */

static void figures_count(void **state)
{
    (void)state;
    struct figure figure = { 0 };
    vmm__figure_add(&figure, 10);
    vmm__figure_subtract(&figure, 4);
    vmm__figure_add(&figure, 1);
    vmm_figure read = vmm__figure_read(&figure);
    assert_int_equal(read.current, 7);
    assert_int_equal(read.peak, 10);
    assert_int_equal(read.allocated, 11);
    assert_int_equal(read.freed, 4);
    vmm__figure_reset_peak(&figure);
    assert_int_equal(vmm__figure_read(&figure).peak, 7);
}

static void *adder_main(void *context)
{
    struct figure *figure = context;
    for (int i = 0; i < 200000; i++) {
        vmm__figure_add(figure, 3);
        vmm__figure_subtract(figure, 3);
    }
    return NULL;
}

/* However others add meanwhile: never fewer allocated than current, never a peak below current. */
static void figures_never_contradict_themselves(void **state)
{
    (void)state;
    struct figure figure = { 0 };
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, adder_main, &figure), 0);
    unsigned wrong = 0;
    for (int i = 0; i < 300000; i++) {
        vmm_figure read = vmm__figure_read(&figure);
        wrong += read.current > read.peak || read.freed > read.allocated;
        if (i % 100 == 0)
            vmm__figure_reset_peak(&figure);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(wrong, 0);
    vmm_figure end = vmm__figure_read(&figure);
    assert_int_equal(end.current, 0);
    assert_int_equal(end.allocated, 3 * 3 * 200000);
    assert_int_equal(end.freed, end.allocated);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_and_a_text),
        cmocka_unit_test(the_last_error_is_kept),
        cmocka_unit_test(what_is_quoted_breaks_no_line),
        cmocka_unit_test(long_errors_are_cut),
        cmocka_unit_test(threads_have_their_own),
        cmocka_unit_test(figures_count),
        cmocka_unit_test(figures_never_contradict_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
