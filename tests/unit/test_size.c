/* Sizes as text. */
#include "support/test_support.h"

#include "base/arith.h"
#include "base/size.h"

#include <locale.h>

static void assert_size(const char *text, uint64_t bytes)
{
    uint64_t read = 12345;
    if (!vmm__size_parse(text, &read) || read != bytes)
        fail_msg("'%s' was read as %llu", text, (unsigned long long)read);
}

TEST(sizes_are_parsed)
{
    assert_size("0", 0);
    assert_size("7", 7);
    assert_size("7B", 7);
    assert_size("1K", 1024);
    assert_size("1KiB", 1024);
    assert_size("1.5M", 3 * MIB / 2);
    assert_size("80GiB", 80 * GIB);
    assert_size("0.5T", TIB / 2);
    assert_size("007", 7);
    assert_size("1048576.0", MIB);
}

TEST(invalid_sizes_are_refused)
{
    static const char *const texts[] = { "",
                                         " 1",
                                         "1 ",
                                         "-1",
                                         "+1",
                                         "1KB",
                                         "1k",
                                         "1Ki",
                                         "1KiBs",
                                         "0x10",
                                         "0X10",
                                         "inf",
                                         "nan",
                                         "1e3",
                                         "1E3",
                                         "1.2.3",
                                         ".5",
                                         "1G B",
                                         "1%",
                                         "G",
                                         "GiB",
                                         "1BB",
                                         "1,5G",
                                         "1G\n",
                                         "9223372036854775808",
                                         "99999999999999999999999",
                                         "8388608T",
                                         "1\xc2\xa0G" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        uint64_t bytes = 4711;
        if (vmm__size_parse(texts[i], &bytes) || bytes != 4711)
            fail_msg("'%s' was read as %llu", texts[i], (unsigned long long)bytes);
    }
}

TEST(shares_are_parsed)
{
    uint64_t bytes;
    assert_true(vmm__size_or_share_parse("80%", 1000, &bytes));
    assert_int_equal(bytes, 800);
    assert_true(vmm__size_or_share_parse("12.5%", 1000, &bytes));
    assert_int_equal(bytes, 125);
    assert_true(vmm__size_or_share_parse("2K", 1000, &bytes));
    assert_int_equal(bytes, 2048);
    assert_false(vmm__size_or_share_parse("80 %", 1000, &bytes));
    assert_false(vmm__size_or_share_parse("80%%", 1000, &bytes));
    assert_false(vmm__size_or_share_parse("%", 1000, &bytes));
    assert_false(vmm__size_or_share_parse("-80%", 1000, &bytes));
    assert_false(vmm__size_or_share_parse("999999999999999%", UINT64_MAX, &bytes));
}

/* The program may set a locale with another decimal point. */
TEST(locale_changes_nothing)
{
    static const char *const names[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "es_ES.UTF-8", "de_DE" };
    const char *found = NULL;
    for (int i = 0; i < 4 && found == NULL; i++)
        found = setlocale(LC_ALL, names[i]);
    if (found == NULL) {
        print_message("no locale with a decimal comma is installed\n");
        skip();
    }
    char text[32];
    assert_size("1.5G", 3 * GIB / 2);
    assert_string_equal(vmm__size_write(text, sizeof text, 3 * GIB / 2), "1.5 GiB");
    (void)setlocale(LC_ALL, "C");
}

TEST(sizes_are_written)
{
    char text[32];
    assert_string_equal(vmm__size_write(text, sizeof text, 0), "0 B");
    assert_string_equal(vmm__size_write(text, sizeof text, 1023), "1023 B");
    assert_string_equal(vmm__size_write(text, sizeof text, 1024), "1.0 KiB");
    assert_string_equal(vmm__size_write(text, sizeof text, 410 * MIB), "410 MiB");
    assert_string_equal(vmm__size_write(text, sizeof text, 100 * MIB - 1), "100 MiB");
    assert_string_equal(vmm__size_write(text, sizeof text, 3 * GIB / 2), "1.5 GiB");
    assert_string_equal(vmm__size_write(text, sizeof text, 16 * TIB), "16.0 TiB");
    assert_string_equal(vmm__size_write(text, sizeof text, UINT64_MAX), "16777216 TiB");
}

TEST(arithmetic_does_not_wrap)
{
    uint64_t out = 0;
    assert_true(vmm__add_checked(UINT64_MAX - 1, 1, &out));
    assert_false(vmm__add_checked(UINT64_MAX, 1, &out));
    assert_true(vmm__align_up_checked(UINT64_MAX - 511, 512, &out));
    assert_int_equal(out, UINT64_MAX - 511);
    assert_false(vmm__align_up_checked(UINT64_MAX - 510, 512, &out));
    assert_int_equal(vmm__align_up(513, 512), 1024);
    assert_int_equal(vmm__align_down(1023, 512), 512);
    assert_int_equal(vmm__log2(1), 0);
    assert_int_equal(vmm__log2(UINT64_MAX), 63);
}

TEST(only_zero_is_written_as_zero)
{
    assert_string_equal(vmm__size_text(0).text, "0 KiB");
    assert_string_equal(vmm__size_text(1).text, "1 KiB");
    assert_string_equal(vmm__size_text(1024).text, "1 KiB");
    assert_string_equal(vmm__size_text(1025).text, "2 KiB");
    assert_string_equal(vmm__size_text(MIB - 1024).text, "1023 KiB");
    assert_string_equal(vmm__size_text(MIB).text, "1.0 MiB");
    assert_string_equal(vmm__size_text(UINT64_MAX).text, "17592186044416.0 MiB");
}
