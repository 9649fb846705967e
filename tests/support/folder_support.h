/* Counts what lies in a folder, for tests of what a process has open. */
#ifndef VMM_FOLDER_SUPPORT_H
#define VMM_FOLDER_SUPPORT_H

#include "support/test_support.h"

#include <dirent.h>

static inline int count_entries(const char *folder)
{
    int count = 0;
    DIR *listing = opendir(folder);
    assert_non_null(listing);
    while (readdir(listing) != NULL)
        count++;
    (void)closedir(listing);
    return count;
}

/* Counts the open descriptors of this process, and three entries more at each call. */
static inline int descriptors_open(void)
{
    return count_entries("/proc/self/fd");
}

#endif
