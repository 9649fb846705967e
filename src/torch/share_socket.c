/* Sockets between processes that share blocks: see share_socket.h. */
#define _GNU_SOURCE
#include "torch/share_socket.h"
#include "base/error.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* Before the random part of a socket's name. */
#define NAME_PREFIX "vmmcache."

_Static_assert(sizeof(struct share_handle) == 64 && sizeof(struct share_request) == 32 &&
                   sizeof(struct share_answer) == 16,
               "no padding is sent");

static vmm_status call_failed(const char *call)
{
    return vmm__error(VMM_ERR_DRIVER, "share: %s(): %s (%d)", call, strerror(errno), errno);
}

vmm_status vmm__share_random(void *bytes, size_t count)
{
    return getrandom(bytes, count, 0) == (ssize_t)count ? VMM_OK : call_failed("getrandom");
}

/* An address in the abstract namespace begins with a zero and has no file. */
static socklen_t address_make(const char *name, struct sockaddr_un *address)
{
    size_t length = strnlen(name, SOCKET_NAME_BYTES);
    *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

vmm_status vmm__share_listen(char name[SOCKET_NAME_BYTES], int *out)
{
    uint64_t number;
    struct sockaddr_un address;
    vmm_status status = vmm__share_random(&number, sizeof number);
    if (status != VMM_OK)
        return status;
    memset(name, 0, SOCKET_NAME_BYTES);
    (void)snprintf(name, SOCKET_NAME_BYTES, NAME_PREFIX "%016llx", (unsigned long long)number);
    socklen_t length = address_make(name, &address);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0)
        return call_failed("socket");
    if (bind(made, (const struct sockaddr *)&address, length) != 0)
        status = call_failed("bind");
    else if (listen(made, SOMAXCONN) != 0)
        status = call_failed("listen");
    if (status == VMM_OK)
        *out = made;
    else
        (void)close(made);
    return status;
}

/* The error of a call that concerns the other process. */
static vmm_status peer_failed(const char *call)
{
    if (errno == ECONNREFUSED || errno == ECONNRESET || errno == EPIPE)
        return vmm__error(
            VMM_ERR_INVALID_ARGUMENT,
            "share: the process that shared this memory has ended, or runs in another "
            "network namespace");
    if (errno == EAGAIN)
        return vmm__error(VMM_ERR_DRIVER,
                          "share: the process that shared this memory has not answered for %d s",
                          PEER_SECONDS);
    return call_failed(call);
}

static bool peer_connect(int made, const struct sockaddr_un *address, socklen_t length)
{
    int result;
    do
        result = connect(made, (const struct sockaddr *)address, length);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

vmm_status vmm__share_connect(const char name[SOCKET_NAME_BYTES], int *out)
{
    struct sockaddr_un address;
    vmm_status status = VMM_OK;
    socklen_t length = address_make(name, &address);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0)
        return call_failed("socket");
    if (!vmm__share_wait_bound(made))
        status = call_failed("setsockopt");
    else if (!peer_connect(made, &address, length))
        status = peer_failed("connect");
    else if (!vmm__share_peer_is_own(made))
        status = vmm__error(VMM_ERR_INVALID_ARGUMENT,
                            "share: the socket of the handle belongs to another user");
    if (status == VMM_OK)
        *out = made;
    else
        (void)close(made);
    return status;
}

bool vmm__share_peer_is_own(int socket)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           peer.uid == geteuid();
}

bool vmm__share_wait_bound(int socket)
{
    const struct timeval time = { .tv_sec = PEER_SECONDS };
    return setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time) == 0 &&
           setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0;
}

vmm_status vmm__share_bytes_send(int socket, const void *bytes, size_t count)
{
    const char *next = bytes;
    while (count > 0) {
        ssize_t sent = send(socket, next, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return peer_failed("send");
        next += sent;
        count -= (size_t)sent;
    }
    return VMM_OK;
}

vmm_status vmm__share_bytes_receive(int socket, void *bytes, size_t count)
{
    char *next = bytes;
    while (count > 0) {
        ssize_t received = recv(socket, next, count, 0);
        if (received < 0 && errno == EINTR)
            continue;
        if (received == 0)
            errno = ECONNRESET;
        if (received <= 0)
            return peer_failed("recv");
        next += received;
        count -= (size_t)received;
    }
    return VMM_OK;
}
