/*
 * A target of libFuzzer without libFuzzer: feeds it each file of a corpus, and then mutations of them that
 * follow from a seed.
 *
 * usage: PROGRAM [--seed N] [--mutations N] FOLDER|FILE...
 *
 * What fails says which mutation it was; the same seed makes the same again.
 */
#include "parser.h"

#include "base/arith.h"
#include "fragtest/trace/random.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_FILES = 512, MOST_EDITS = 8, MOST_BYTES = 65536, ROOM_BYTES = 64 };

struct file {
    uint8_t *data;
    size_t bytes;
};

static struct file files[MOST_FILES];
static unsigned file_count;

/* What is under way, for who has to tell how it ended. */
static char under_way[512];

static void ended_by_signal(int number)
{
    static const char text[] = "\nended in: ";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    (void)!write(STDERR_FILENO, under_way, strlen(under_way));
    (void)!write(STDERR_FILENO, "\n", 1);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* ---- The corpus ------------------------------------------------------------------------------- */

static void file_read(const char *path)
{
    FILE *file = fopen(path, "rbe");
    struct stat stat;
    must(file != NULL && fstat(fileno(file), &stat) == 0);
    must(file_count < MOST_FILES);
    struct file *out = &files[file_count++];
    out->data = malloc((size_t)stat.st_size + 1);
    must(out->data != NULL);
    out->bytes = fread(out->data, 1, (size_t)stat.st_size, file);
    (void)fclose(file);
    (void)snprintf(under_way, sizeof under_way, "%.500s", path);
    (void)LLVMFuzzerTestOneInput(out->data, out->bytes);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void path_read(const char *path)
{
    struct stat stat_;
    must(stat(path, &stat_) == 0);
    if (!S_ISDIR(stat_.st_mode)) {
        file_read(path);
        return;
    }
    struct dirent **entries;
    int count = scandir(path, &entries, is_visible, alphasort); /* the same order everywhere */
    must(count >= 0);
    for (int i = 0; i < count; i++) {
        char name[1024];
        (void)snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        file_read(name);
        free(entries[i]);
    }
    free(entries);
}

/* ---- Mutations ---------------------------------------------------------------------------------- */

/* What parsers compare with, and where numbers end. */
static const char *const words[] = {
    "0",
    "-1",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775808",
    "%",
    "KiB",
    "TiB",
    "+ ",
    "- ",
    "\n",
    " ",
    ".",
    "1e9",
    "70368744177664",
    "any",
    "--",
    "=",
    ",",
    "\"",
};
enum { WORDS = sizeof words / sizeof words[0] };

static uint64_t below(uint64_t *seed, uint64_t limit)
{
    return limit == 0 ? 0 : random_next(seed) % limit;
}

/* Puts bytes in the place of others. */
static void splice(struct file *input, size_t at, size_t removed, const void *added, size_t bytes)
{
    if (input->bytes - removed + bytes > MOST_BYTES)
        return;
    memmove(input->data + at + bytes, input->data + at + removed, input->bytes - at - removed);
    memcpy(input->data + at, added, bytes);
    input->bytes += bytes - removed;
}

static void edit(struct file *input, uint64_t *seed)
{
    uint8_t noise[ROOM_BYTES];
    size_t at = below(seed, input->bytes + 1);
    size_t some = below(seed, vmm__min(input->bytes - at, ROOM_BYTES) + 1);
    const struct file *other = &files[below(seed, file_count)];
    const char *word = words[below(seed, WORDS)];
    size_t from = below(seed, other->bytes);
    switch (below(seed, 6)) {
    case 0:
        if (at < input->bytes)
            input->data[at] ^= (uint8_t)(1U << below(seed, 8));
        break;
    case 1:
        if (at < input->bytes)
            input->data[at] = (uint8_t)random_next(seed);
        break;
    case 2:
        splice(input, at, some, "", 0);
        break;
    case 3:
        splice(input, at, below(seed, 2) == 0 ? 0 : some, word, strlen(word));
        break;
    case 4:
        memcpy(noise, input->data + at, some);
        splice(input, below(seed, input->bytes + 1), 0, noise, some);
        break;
    default:
        splice(input, at, some, other->data + from,
               vmm__min(other->bytes - from, 1 + below(seed, ROOM_BYTES)));
        break;
    }
}

/* In memory that is exactly as long as it is. */
static void exact_run(const struct file *input)
{
    uint8_t *copy = malloc(input->bytes);
    must(copy != NULL || input->bytes == 0);
    if (input->bytes > 0)
        memcpy(copy, input->data, input->bytes);
    (void)LLVMFuzzerTestOneInput(copy, input->bytes);
    free(copy);
}

static void mutations_run(uint64_t seed, uint64_t mutations)
{
    static uint8_t room[MOST_BYTES];
    for (uint64_t i = 0; i < mutations; i++) {
        uint64_t state = seed * UINT64_C(1000003) + i;
        const struct file *file = &files[below(&state, file_count)];
        struct file input = { .data = room, .bytes = vmm__min(file->bytes, MOST_BYTES) };
        memcpy(room, file->data, input.bytes);
        for (uint64_t edits = 1 + below(&state, MOST_EDITS); edits > 0; edits--)
            edit(&input, &state);
        (void)snprintf(under_way, sizeof under_way, "--seed %llu, mutation %llu, %zu bytes",
                       (unsigned long long)seed, (unsigned long long)i, input.bytes);
        exact_run(&input);
    }
}

int main(int argc, char **argv)
{
    uint64_t seed = 1;
    uint64_t mutations = 0;
    (void)signal(SIGABRT, ended_by_signal);
    (void)signal(SIGSEGV, ended_by_signal);
    (void)signal(SIGFPE, ended_by_signal);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--mutations") == 0 && i + 1 < argc)
            mutations = strtoull(argv[++i], NULL, 10);
        else
            path_read(argv[i]);
    }
    must(file_count > 0);
    mutations_run(seed, mutations);
    (void)printf("%u files, %llu mutations of seed %llu\n", file_count,
                 (unsigned long long)mutations, (unsigned long long)seed);
    for (unsigned i = 0; i < file_count; i++)
        free(files[i].data);
    return 0;
}
