/* Counts what lies in a folder, for tests of what a process has open. */
#ifndef VMM_FOLDER_SUPPORT_H
#define VMM_FOLDER_SUPPORT_H

#include <dirent.h>
#include <stdlib.h>

/* With the entries for the folder itself and its parent. */
static inline int count_entries(const char *folder)
{
    int count = 0;
    DIR *listing = opendir(folder);
    if (listing == NULL)
        abort(); /* ends a child of a test as well as the test */
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
