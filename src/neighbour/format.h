/*
 * The format of a record: a file that the processes of one user on one device share. Each has a slot, which only it
 * writes. A record is one head, then the slots. All numbers are those of the machine.
 *
 * Nothing orders a reader and a writer: a reader copies a slot as a whole, and copies again if its checksum is wrong. A
 * reader must trust nothing: any program of the user can write the file, or cut it.
 *
 * Owns: nothing. Invariant: a change of any structure raises NEIGHBOUR_VERSION.
 * May be called by: neighbour, cache, and vmmtop. Locks: none.
 */
#ifndef VMM_NEIGHBOUR_FORMAT_H
#define VMM_NEIGHBOUR_FORMAT_H

#include "monitor/format.h"

#define NEIGHBOUR_MAGIC  "vmmneigh"
#define NEIGHBOUR_PREFIX "vmmcache-neighbours." /* a record is PREFIX UID "." DEVICE */

enum {
    NEIGHBOUR_VERSION = 2,
    NEIGHBOUR_SLOTS = 64, /* of the caches of one user on one device; more have no neighbours */
    NEIGHBOUR_FOLDER_MOST = 3072
};

/* Futexes that other processes wait for. BELL_ASKED changes when a process claims, BELL_GIVEN when one has given. */
enum neighbour_bell { BELL_ASKED, BELL_GIVEN, BELLS };

struct neighbour_head {
    char magic[MONITOR_MAGIC_BYTES];
    uint32_t version;
    uint32_t slot_bytes;
    uint32_t slots;
    uint32_t bells[BELLS];
    uint32_t unused;
};

/* What a cache shows. */
struct neighbour_slot {
    uint64_t checksum; /* of all that follows */
    uint64_t revision; /* rises with each state */
    uint64_t pid;      /* 0: no process has had the slot */
    uint64_t pid_space;
    uint64_t start_ticks;
    uint64_t priority;
    uint64_t floor_bytes;
    uint64_t limit_bytes; /* 0: none */
    uint64_t live_bytes;
    uint64_t reserved_bytes;
    uint64_t idle_bytes; /* that it could give, also beyond its floor */
    uint64_t asleep_bytes;
    uint64_t given_bytes; /* so far */
    uint64_t claims;      /* so far */
    uint64_t want_bytes;  /* of free memory on the device; 0: no claim */
    uint64_t begin_ns;    /* when the request began to claim, CLOCK_MONOTONIC, as is the next */
    uint64_t end_ns;
    uint64_t giving_ns; /* since when it releases a part of what is claimed; 0: it does not */
    char name[MONITOR_NAME_BYTES];
};

struct neighbour_file {
    struct neighbour_head head;
    struct neighbour_slot slots[NEIGHBOUR_SLOTS];
};

#endif
