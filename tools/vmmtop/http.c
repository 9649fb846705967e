/* The endpoint that Prometheus scrapes: see http.h. */
#define _GNU_SOURCE
#include "vmmtop/http.h"

#include "text/number.h"
#include "vmmtop/export.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECTIONS_MOST = 16, SECONDS_MOST = 3, PORT_DIGITS = 5, EXIT_BAD = 2 };

static const char metrics_type[] = "text/plain; version=0.0.4; charset=utf-8";

/* Sends a text that malloc() made, and frees it. */
static enum MHD_Result text_send(struct MHD_Connection *connection, unsigned status, char *text,
                                 size_t bytes, const char *type)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(bytes, text, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(text);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result metrics_send(struct MHD_Connection *connection, struct processes *processes)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return MHD_NO;
    bool is_read = processes_scan(processes);
    if (is_read)
        export_prometheus(out, processes);
    else
        (void)fprintf(out, "cannot read %s: %s\n", processes->folder, strerror(errno));
    if (fclose(out) != 0) {
        free(text);
        return MHD_NO;
    }
    unsigned status = is_read ? MHD_HTTP_OK : MHD_HTTP_INTERNAL_SERVER_ERROR;
    return text_send(connection, status, text, bytes, metrics_type);
}

static enum MHD_Result request_answer(void *context, struct MHD_Connection *connection,
                                      const char *url, const char *method, const char *version,
                                      const char *data, size_t *data_bytes, void **state)
{
    bool is_read =
        strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    (void)version;
    (void)data;
    (void)data_bytes;
    (void)state;
    if (is_read && strcmp(url, "/metrics") == 0)
        return metrics_send(connection, context);
    char *text = strdup(is_read ? "see /metrics\n" : "only GET\n");
    if (text == NULL)
        return MHD_NO;
    return text_send(connection, is_read ? MHD_HTTP_NOT_FOUND : MHD_HTTP_METHOD_NOT_ALLOWED, text,
                     strlen(text), "text/plain");
}

/* Splits [HOST]:PORT. NULL: it is malformed; getaddrinfo() would take a port of any size. */
static struct addrinfo *address_parse(const char *address)
{
    char host[64] = "127.0.0.1";
    const char *colon = strrchr(address, ':');
    struct addrinfo wanted = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                               .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    uint64_t port;
    if (colon == NULL || strlen(colon + 1) > PORT_DIGITS ||
        !number_parse(colon + 1, 0, UINT16_MAX, &port) || colon - address >= (ptrdiff_t)sizeof host)
        return NULL;
    bool is_bracketed = colon > address && address[0] == '[' && colon[-1] == ']';
    if (colon > address)
        (void)snprintf(host, sizeof host, "%.*s", (int)(colon - address - 2 * is_bracketed),
                       address + is_bracketed);
    return getaddrinfo(host, colon + 1, &wanted, &found) == 0 ? found : NULL;
}

static struct MHD_Daemon *server_start(struct processes *processes, const struct addrinfo *address)
{
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO;
    if (address->ai_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    return MHD_start_daemon(flags, 0, NULL, NULL, request_answer, processes, MHD_OPTION_SOCK_ADDR,
                            address->ai_addr, MHD_OPTION_CONNECTION_LIMIT,
                            (unsigned)CONNECTIONS_MOST, MHD_OPTION_CONNECTION_TIMEOUT,
                            (unsigned)SECONDS_MOST, MHD_OPTION_END);
}

static void url_print(struct MHD_Daemon *server, const struct addrinfo *address)
{
    char host[64] = "";
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server, MHD_DAEMON_INFO_BIND_PORT);
    bool is_six = address->ai_family == AF_INET6;
    (void)getnameinfo(address->ai_addr, address->ai_addrlen, host, sizeof host, NULL, 0,
                      NI_NUMERICHOST);
    (void)fprintf(stderr, "vmmtop: http://%s%s%s:%u/metrics\n", is_six ? "[" : "", host,
                  is_six ? "]" : "", info == NULL ? 0U : (unsigned)info->port);
}

int http_serve(struct processes *processes, const char *text)
{
    sigset_t ends;
    int signal_number;
    struct addrinfo *address = address_parse(text);
    if (address == NULL) {
        (void)fprintf(stderr, "vmmtop: --prometheus takes [HOST]:PORT, with a numeric HOST\n");
        return EXIT_BAD;
    }
    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGINT);
    (void)sigaddset(&ends, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &ends, NULL); /* the server's thread inherits it */
    struct MHD_Daemon *server = server_start(processes, address);
    if (server == NULL) {
        (void)fprintf(stderr, "vmmtop: cannot listen on %s: %s\n", text, strerror(errno));
        freeaddrinfo(address);
        return EXIT_BAD;
    }
    url_print(server, address);
    (void)sigwait(&ends, &signal_number);
    MHD_stop_daemon(server);
    freeaddrinfo(address);
    return 0;
}
