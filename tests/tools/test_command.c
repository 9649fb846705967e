/*
 * The program itself, as scripts use it: what it ends with, and what goes to which output.
 */
#include "command_support.h"

#include "fragtest/trace/workload.h"

TEST(test_help)
{
    command_expect("--help", 0);
    assert_contains(ran.output, "--policy");
    assert_contains(ran.output, "sawtooth");
    assert_contains(ran.output, "  neighbours[:SIZE] Three processes"); /* the longest name */
    assert_contains(ran.output, "32MiB to 4GiB");
    assert_contains(ran.output, "8MiB to 1024GiB");
    struct run help = ran;
    command_expect("-h", 0);
    assert_string_equal(ran.output, help.output);
}

TEST(test_version_and_lists)
{
    command_expect("--version", 0);
    assert_contains(ran.output, "fragtest, libvmmcache ");
    assert_contains(ran.output, vmm_version());
    command_expect("--workload list", 0);
    for (unsigned i = 0; i < WORKLOAD_COUNT; i++)
        assert_contains(ran.output, workload_name(i));
}

/* What was mistyped is answered with the nearest name, or with all names. */
TEST(test_near_names)
{
    command_refuse("--traec gnn", "unknown option \"--traec\"; did you mean --trace?");
    command_refuse("--memmory=8GiB", "did you mean --memory?");
    command_refuse("--workload saw", "knows no \"saw\"; did you mean sawtooth?");
    command_refuse("--workload xyz", "choose from steady, varlen, serving, sawtooth");
    command_refuse("--policy vmcache", "did you mean vmmcache?");
    command_refuse("--driver sim --trace llm_genrate", "did you mean llm_generate?");
    command_refuse("--driver sim --trace resnet",
                   "; choose from detection, encoder_streams, gnn, llm_generate, llm_train_varlen");
}

/* Of a program without its traces the error says where they should be. */
TEST(test_missing_bundled_trace)
{
    struct test_path folder = test_path("alone");

    command_refuse(
        line_of("--version > /dev/null; F='%s'; mkdir -p \"$F/bin\"; "
                "cp \"$FRAGTEST\" \"$F/bin\"; \"$F/bin/fragtest\" --driver sim --trace gnn",
                folder.text),
        ".alone/bin/../share/vmmcache/traces/gnn.trace.gz:1: cannot open");
    assert_null(strstr(ran.output, "did you mean"));
    command_expect(line_of("--version; rm -r '%s'", folder.text), 0);
}

TEST(test_bad_usage)
{
    command_refuse("--fast", "unknown option");
    command_refuse("--memory much", "--memory takes");
    command_refuse("--reuse \"$(printf 'wait\\nwait')\"", "not \"wait?wait\"");
    command_refuse("--driver sim --trace /no/such.trace", "/no/such.trace:1: cannot open");
    command_refuse("--driver sim --trace no_such_name", "no_such_name:1: cannot open");
    command_refuse("--driver sim --trace gnn --json /no/such/folder/x", "cannot write");
    command_refuse("--driver sim --trace gnn --timeline /no/such/folder/x", "cannot write");
}

TEST(test_bad_trace)
{
    static const char text[] = "+ 1 4096 0\n- 1\n- 1\n";
    struct test_path path = test_path("bad");

    test_file_write(path.text, text, sizeof(text) - 1);
    command_refuse(line_of("--driver sim --trace gnn --trace '%s'", path.text),
                   "test_command.bad:3: id 1 is freed but not live");
    (void)unlink(path.text);
}

/* Runs it with what `producer` writes as its standard input. */
static void piped_run(const char *producer, const char *rest)
{
    command_run(line_of("--version >/dev/null; %s | \"$FRAGTEST\" %s", producer, rest));
}

TEST(test_trace_from_standard_input)
{
    piped_run("printf '+ 1 4096 0\\n- 1\\n'", "--driver sim --trace - --quiet");
    assert_int_equal(strncmp(ran.output, "stdin, 2 operations, sim driver\n", 32), 0);
    piped_run("printf '+ 1 4096 0\\n- 1\\n' | gzip", "--driver sim --trace=- --quiet");
    assert_int_equal(strncmp(ran.output, "stdin, 2 operations, sim driver\n", 32), 0);
    piped_run("printf '+ 1 4096 0\\n- 2\\n'", "--driver sim --trace - 2>&1");
    assert_int_equal(ran.code, 2);
    assert_string_equal(ran.output,
                        "fragtest: stdin:2: id 2 is freed but not live: unknown or freed before\n");
    piped_run("printf '# recorded by libvmmcache 1\\n+ 1 4096 0\\n- 1\\n' | gzip | head -c -1",
              "--driver sim --trace - --quiet 2>&1");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.output, "fragtest: stdin: the file was cut: replayed up to its last");
    command_refuse("--driver sim --trace - --quiet </dev/null", "stdin:1: no operations");
    command_refuse("--driver sim --trace - --trace gnn --trace -",
                   "--trace - may be given only once");
}

TEST(test_vmmcache_survives)
{
    command_expect("--driver sim --quiet 2>&1", 0);
    assert_contains(ran.output, "vmmcache survived and verified");
    assert_contains(ran.output, "block-splitting failed");
    assert_contains(ran.output, "block-splitting: needed");
    assert_int_equal(strncmp(ran.output, "encoder_streams, 97117 operations", 33), 0);
}

/* Without --driver, fragtest chooses, and says so in one line even if it is to be quiet. */
TEST(test_driver_is_chosen_by_name)
{
    (void)setenv("CUDA_VISIBLE_DEVICES", "", 1);
    command_expect("--workload steady --policy vmmcache --quiet 2>&1 >/dev/null", 0);
    assert_int_equal(strncmp(ran.output, "fragtest: using the host driver (ordinary memory): ", 51),
                     0);
    assert_int_equal(strcspn(ran.output, "\n"), strlen(ran.output) - 1);
    command_expect("--workload steady --policy vmmcache --quiet --driver host 2>&1 >/dev/null", 0);
    assert_null(strstr(ran.output, "using"));
    command_run("--workload steady --driver cuda 2>&1");
    assert_int_equal(ran.code, 2);
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(test_pictures)
{
    command_expect("--driver sim --trace gnn --memory 105% 2>/dev/null", 0);
    assert_contains(ran.output, "reserved, not live");
    assert_contains(ran.output, "of 9417 operations");
}

TEST(test_death_ends_with_one)
{
    command_expect("--driver sim --trace gnn --policy block-splitting --memory 101% --quiet", 1);
    command_expect("--driver sim --trace gnn --policy vmmcache --memory 50% --quiet", 1);
    command_expect("--driver sim --trace gnn --policy expandable --quiet", 0);
}

/* A JSON text's braces and brackets, outside of strings, must close in order. */
static void assert_balanced(const char *text)
{
    char open[64];
    unsigned depth = 0;
    bool in_string = false;

    for (; *text != '\0'; text++) {
        if (in_string && *text == '\\')
            text++;
        else if (*text == '"')
            in_string = !in_string;
        else if (!in_string && (*text == '{' || *text == '['))
            open[depth++] = *text;
        else if (!in_string && (*text == '}' || *text == ']'))
            assert_true(depth > 0 && open[--depth] == (*text == '}' ? '{' : '['));
        assert_true(depth < sizeof(open));
    }
    assert_true(depth == 0 && !in_string);
}

TEST(test_json_alone_on_stdout)
{
    command_expect("--driver sim --workload steady --memory 105% --passes 2 --json - 2>/dev/null",
                   0);
    assert_int_equal(strncmp(ran.output, "{\"machine\":\"", 12), 0);
    assert_balanced(ran.output);
    assert_contains(ran.output, "\"trace\":\"steady\",\"policy\":\"vmmcache\",\"driver\":\"sim\"");
    assert_contains(ran.output, "\"verified\":null");
}

TEST(test_json_file)
{
    struct test_path path = test_path("json");

    command_expect(
        line_of("--driver sim --workload serving --verify --lag 100 --policy vmmcache --quiet "
                "--json '%s'",
                path.text),
        0);
    FILE *file = fopen(path.text, "r");
    assert_non_null(file);
    ran.output[fread(ran.output, 1, OUTPUT_BYTES - 1, file)] = '\0';
    (void)fclose(file);
    (void)unlink(path.text);
    assert_balanced(ran.output);
    assert_contains(ran.output, "\"verified\":true");
}

TEST(test_trims_and_settings)
{
    command_expect("--driver sim --workload serving --lag 100 --reuse stream_wait --footprint any "
                   "--trims 10 --policy all --quiet 2>&1",
                   0);
    assert_contains(ran.output, "after trim");
    assert_contains(ran.output, "lower bound");
    command_expect("--driver sim --workload steady --compaction off --trims 10 --quiet "
                   "--policy expandable,vmmcache --json - 2>/dev/null",
                   0);
    assert_contains(ran.output, "\"policy\":\"expandable\",\"driver\":\"sim\",\"settings\":null");
    assert_contains(ran.output, "\"compaction\":\"off\"}");
    assert_contains(ran.output, "\"trims\":10,");
    command_expect("--driver sim --trace gnn --compacts 5 --passes 2 --jitter 10 --verify --quiet "
                   "--policy expandable,vmmcache --json - 2>/dev/null",
                   0);
    assert_contains(ran.output, "\"compacts\":10,");
    assert_contains(ran.output, "\"stitches\":null,");
    assert_contains(ran.output, "\"verified\":true,");
}

TEST(test_timeline_alone_on_stdout)
{
    static const char begin[] = "trace,policy,operation,live_bytes,reserved_bytes\n"
                                "gnn,vmmcache,0,";
    unsigned lines = 0;

    command_expect("--driver sim --trace gnn --policy vmmcache --timeline - 2>/dev/null | "
                   "sed -n '1,2p;$='",
                   0);
    assert_int_equal(strncmp(ran.output, begin, sizeof(begin) - 1), 0);
    (void)sscanf(ran.output, "%*s %*s %u", &lines);
    assert_int_equal(lines, 2047); /* the columns' names, and 2046 samples */
}
