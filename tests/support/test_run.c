/* The list of a program's tests, which TEST() adds before main() starts: see test_support.h. */
#include "support/test_support.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_TESTS = 128 };
static struct CMUnitTest tests[MOST_TESTS];
static int test_lines[MOST_TESTS];
static size_t test_count;

/* The compiler chooses the order of the calls, so each test is inserted where its line belongs. */
void test_add(const char *name, CMUnitTestFunction run, CMFixtureFunction setup,
              CMFixtureFunction teardown, int line)
{
    if (test_count == MOST_TESTS) {
        (void)fprintf(stderr, "a program has at most %d tests\n", MOST_TESTS);
        exit(EXIT_FAILURE);
    }
    size_t place = test_count++;
    for (; place > 0 && test_lines[place - 1] > line; place--) {
        tests[place] = tests[place - 1];
        test_lines[place] = test_lines[place - 1];
    }
    tests[place] = (struct CMUnitTest){ name, run, setup, teardown, NULL };
    test_lines[place] = line;
}

int tests_run(CMFixtureFunction group_setup, CMFixtureFunction group_teardown)
{
    if (test_count == 0) {
        (void)fprintf(stderr, "the program has no tests\n");
        return EXIT_FAILURE;
    }
    return _cmocka_run_group_tests("tests", tests, test_count, group_setup, group_teardown);
}
