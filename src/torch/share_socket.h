/*
 * What two processes say to each other when one opens a block that the other shares.
 *
 *   exporter                     a handle, which PyTorch takes to the other process: a socket's name and a token
 *   importer -> exporter         a request with the token
 *   exporter -> importer         an answer; then, if it is SHARE_GRANTED, what vmm_share_send() sends
 *
 * The socket is a Unix socket in the abstract namespace, with a random name. Each side checks that the other is of the
 * same user, and waits for it a bounded time. All structures have fixed sizes and no padding, and are sent as they are.
 *
 * Owns: nothing; the caller closes the sockets. May be called by: share, shared_blocks, share_server. Locks: none.
 */
#ifndef VMM_TORCH_SHARE_SOCKET_H
#define VMM_TORCH_SHARE_SOCKET_H

#include "vmmcache/vmmcache.h"

#include <stdbool.h>
#include <stdint.h>

enum { TOKEN_BYTES = 16, SOCKET_NAME_BYTES = 32, SHARE_VERSION = 1 };

/* How long a side waits for the other: for any part of a message. A process that is alive answers at once. */
enum { PEER_SECONDS = 10 };

#define SHARE_MAGIC UINT64_C(0x6870726f74766d76) /* "vmvtorph" */

struct share_token {
    unsigned char bytes[TOKEN_BYTES]; /* random */
};

/* What PyTorch carries from one process to another. Equal blocks have equal handles, for PyTorch compares them. */
struct share_handle {
    uint64_t magic;
    uint32_t version;
    uint32_t zero;
    struct share_token token;
    char socket[SOCKET_NAME_BYTES]; /* with zeros behind it */
};

struct share_request {
    uint64_t magic;
    uint32_t version;
    uint32_t zero;
    struct share_token token;
};

enum share_result {
    SHARE_GRANTED = 0,
    SHARE_UNKNOWN = 1, /* freed, or never shared */
    SHARE_REFUSED = 2  /* the request is not one of this version */
};

struct share_answer {
    uint64_t magic;
    uint32_t result; /* enum share_result */
    uint32_t zero;
};

/* Fills in bytes that cannot be guessed. ERR_DRIVER. */
vmm_status vmm__share_random(void *bytes, size_t count);

/* Opens a socket that listens, without waiting, under a new name. ERR_DRIVER. */
vmm_status vmm__share_listen(char name[SOCKET_NAME_BYTES], int *out);

/* Connects to a name. ERR_INVALID_ARGUMENT: its process has ended, or is of another user; ERR_DRIVER. */
vmm_status vmm__share_connect(const char name[SOCKET_NAME_BYTES], int *out);

/* Whether the other end of a socket is a process of this user. */
bool vmm__share_peer_is_own(int socket);

/* Makes the socket wait PEER_SECONDS at most for each part that is sent or received. Returns whether it will. */
bool vmm__share_wait_bound(int socket);

/* Send and receive a structure as a whole. ERR_INVALID_ARGUMENT: the other side has ended; ERR_DRIVER: it is too slow,
 * or the socket has failed. */
vmm_status vmm__share_bytes_send(int socket, const void *bytes, size_t count);
vmm_status vmm__share_bytes_receive(int socket, void *bytes, size_t count);

#endif
