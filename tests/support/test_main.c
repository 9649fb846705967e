/* The main() of programs that have none. */
#include "support/test_support.h"

int main(void)
{
    return tests_run(NULL, NULL);
}
