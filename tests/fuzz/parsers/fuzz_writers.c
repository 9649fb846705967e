/* fragtest's JSON and CSV: whatever a trace is called and whatever went wrong, others can read them. */
#include "parser.h"

#include "fragtest/report/csv.h"
#include "fragtest/report/json.h"
#include "fragtest/trace/trace.h"

/* ---- JSON: one value, by the grammar of RFC 8259 ---------------------------------------------------- */

static const char *value_skip(const char *at);

static const char *blanks_skip(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static const char *escape_skip(const char *at)
{
    if (*at != 'u') {
        must(*at != '\0' && strchr("\"\\/bfnrt", *at) != NULL);
        return at + 1;
    }
    must(strspn(at + 1, "0123456789abcdefABCDEF") >= 4);
    return at + 5;
}

/* Bytes after the first of a UTF-8 character. */
static const char *character_skip(const char *at)
{
    unsigned char first = (unsigned char)*at++;
    int more = first < 0x80 ? 0 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    must(first < 0x80 || (first >= 0xC2 && first < 0xF5));
    for (; more > 0; more--)
        must(((unsigned char)*at++ & 0xC0) == 0x80);
    return at;
}

static const char *string_skip(const char *at)
{
    must(*at == '"');
    at++;
    while (*at != '"') {
        must((unsigned char)*at >= ' ');
        at = *at == '\\' ? escape_skip(at + 1) : character_skip(at);
    }
    return at + 1;
}

static const char *members_skip(const char *at, char end)
{
    at = blanks_skip(at);
    while (*at != end) {
        if (end == '}') {
            at = blanks_skip(string_skip(at));
            must(*at++ == ':');
        }
        at = blanks_skip(value_skip(blanks_skip(at)));
        must(*at == ',' || *at == end);
        if (*at == ',')
            at = blanks_skip(at + 1);
    }
    return at + 1;
}

static const char *value_skip(const char *at)
{
    static const char *const names[] = { "null", "true", "false" };
    if (*at == '"')
        return string_skip(at);
    if (*at == '{' || *at == '[')
        return members_skip(at + 1, *at == '{' ? '}' : ']');
    for (int i = 0; i < 3; i++) {
        if (strncmp(at, names[i], strlen(names[i])) == 0)
            return at + strlen(names[i]);
    }
    size_t number = strspn(at, "-+.0123456789eE");
    must(number > 0);
    return at + number;
}

static void json_check(const char *machine, const struct result *result)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    must(out != NULL);
    json_write(out, machine, result, 1);
    must(fclose(out) == 0);
    must(strlen(text) == length && *blanks_skip(value_skip(text)) == '\0');
    free(text);
}

/* ---- CSV: by RFC 4180 ----------------------------------------------------------------------------- */

/* The field at `at`, which must be `wanted`; returns what ended it. */
static const char *field_check(const char *at, const char *wanted)
{
    bool is_quoted = *at == '"';
    at += is_quoted;
    for (; *wanted != '\0'; wanted++, at++) {
        must(*at == *wanted);
        must(is_quoted || strchr(",\"\r\n", *at) == NULL);
        if (*at == '"')
            must(*++at == '"');
    }
    must(!is_quoted || *at == '"');
    return at + is_quoted;
}

static void csv_check(const struct result *result)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    must(out != NULL);
    csv_write(out, result, 1);
    must(fclose(out) == 0);
    const char *at = strchr(text, '\n');
    must(at != NULL);
    for (at++; *at != '\0'; at++) {
        at = field_check(at, result->trace->name);
        must(*at == ',');
        at = field_check(at + 1, result->policy->name);
        size_t numbers = strspn(at, ",0123456789");
        at += numbers;
        must(numbers > 0 && *at == '\n');
    }
    free(text);
}

/* ---- A result of the input's -------------------------------------------------------------------- */

static void result_fill(struct result *result, const uint8_t *data, size_t bytes)
{
    struct timeline *timeline = &result->timeline;
    struct replay_outcome *outcome = &result->outcome;
    uint64_t number = 0;
    memcpy(&number, data, bytes < sizeof number ? bytes : sizeof number);
    outcome->ok = number % 2 != 0;
    outcome->ops = timeline->ops = 1 + number % 60;
    outcome->ops_done = timeline->ops_done = outcome->ops / 2;
    outcome->peak_live_bytes = outcome->lower_bound_bytes = 1 + number / 2;
    outcome->peak_reserved_bytes = outcome->driver_ns = ~number;
    outcome->trims.count = number % 3;
    outcome->compacts.count = number % 2;
    outcome->has_stats = number % 7 != 0;
    outcome->stats.planning_ns = number;
    outcome->verified = (enum replay_verified)(number % 3);
    result->limit_bytes = number & (number >> 32);
    result->settings.footprint_permille = number % 5 == 0 ? VMM_FOOTPRINT_ANY : number % 2;
    for (uint64_t op = 0; op < timeline->ops_done; op++)
        timeline_note(timeline, op, number * op, number + op);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct result result;
    char *text = text_of(data, bytes);
    struct trace trace = { .name = text };
    result = (struct result){ .trace = &trace, .driver = text };
    result.policy = policy_at((unsigned)(bytes % POLICY_COUNT));
    (void)snprintf(result.outcome.reason, sizeof result.outcome.reason, "%s", text);
    result_fill(&result, data, bytes);
    json_check(text, &result);
    csv_check(&result);
    free(text);
    return 0;
}
