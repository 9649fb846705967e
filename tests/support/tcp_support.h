/* Two connected sockets that are no Unix sockets. */
#ifndef VMM_TCP_SUPPORT_H
#define VMM_TCP_SUPPORT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

/* A close ends the connection at once, so that many in a row leave no port behind that waits. The other side loses what
 * it has not read. */
static inline bool tcp_end_at_once(int socket)
{
    const struct linger none = { .l_onoff = 1 };
    return setsockopt(socket, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0;
}

static inline bool tcp_connect(int listener, int sockets[2])
{
    struct sockaddr_in address;
    socklen_t bytes = sizeof address;
    if (listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&address, &bytes) != 0)
        return false;
    sockets[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (sockets[0] < 0)
        return false;
    if (connect(sockets[0], (struct sockaddr *)&address, bytes) == 0)
        sockets[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (sockets[1] >= 0 && tcp_end_at_once(sockets[0]))
        return true;
    (void)close(sockets[0]);
    if (sockets[1] >= 0)
        (void)close(sockets[1]);
    return false;
}

/* Connects two sockets through TCP within this machine. Close the first one when the second one has read everything. */
static inline bool tcp_pair(int sockets[2])
{
    const struct sockaddr_in here = { .sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockets[0] = sockets[1] = -1;
    if (listener < 0)
        return false;
    bool is_connected = bind(listener, (const struct sockaddr *)&here, sizeof here) == 0 &&
                        tcp_connect(listener, sockets);
    (void)close(listener);
    return is_connected;
}

#endif
