/* seam: the program's entry, and the only place that ends the process. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/cli/cli.h"

static const char help[] =
    "seam " SEAM_VERSION ", an LLM server made of plugins\n"
    "\n"
    "  seam serve -c FILE [options]     answer over HTTP\n"
    "  seam run -c FILE -p TEXT         generate in the terminal\n"
    "  seam inspect DIR [--budget N] [--dense bf16|int8|int4]\n"
    "                                   what a checkpoint holds and needs\n"
    "  seam plugins -c FILE             what the configuration would load\n"
    "  seam pin FILE.so                 the configuration entry for a plugin\n"
    "  seam check FILE.so [options]     does a plugin keep the contract\n"
    "  seam eval ppl FILE -c FILE       perplexity of a text\n"
    "  seam bench WHAT [options]        how fast it is; seam bench --help\n"
    "  seam help | --version\n"
    "\n"
    "options of serve, run, plugins and eval:\n"
    "  -c, --config FILE     the configuration\n"
    "  --set KEY=VALUE       one setting, such as engine.threads=2\n"
    "  --model DIR           model.path\n"
    "  --listen HOST:PORT    server.listen\n"
    "  --insecure            server.insecure: no key for any address\n"
    "  --threads N           engine.threads\n"
    "  --trace FILE          engine.trace: a timeline for chrome://tracing\n"
    "  --log-level LEVEL     log.level: debug, info, warn, error\n"
    "  --print-config        (serve) show every setting with its origin\n"
    "\n"
    "options of check:\n"
    "  --only GROUPS         groups or tests, such as file,state.accept\n"
    "  --reference FILE.so   the twin to compare numbers with; NAME_ref.so\n"
    "  --config JSON|FILE    the plugin's own block of the configuration\n"
    "  --seed N              other weights and inputs; 1\n"
    "  --limit SECONDS       of one test; 120\n"
    "  --json                one line of JSON for each test\n"
    "  --in-process          one test, in this process, for a debugger\n"
    "\n"
    "options of eval ppl:\n"
    "  --window N            tokens of a row, each scored on its own; 1024\n"
    "  --rows N              only the first N rows\n"
    "  --json                one line of JSON\n"
    "\n"
    "docs/configuration.md lists all settings, docs/check.md all tests.\n";

static bool is_help(const char *arg)
{
    return !strcmp(arg, "--help") || !strcmp(arg, "-h");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } command[] = {
        { "serve", seam_cli_serve },     { "run", seam_cli_run },
        { "inspect", seam_cli_inspect }, { "plugins", seam_cli_plugins },
        { "pin", seam_cli_pin },         { "check", seam_cli_check },
        { "eval", seam_cli_eval },       { "bench", seam_cli_bench },
    };
    bool asked = false;

    if (argc < 2) {
        fputs(help, stderr);
        return 2;
    }
    for (size_t i = 0; i < sizeof command / sizeof *command; i++) {
        if (strcmp(argv[1], command[i].name) != 0)
            continue;
        /* That of bench is long enough to be its own. */
        asked = argc > 2 && is_help(argv[2]) && strcmp(argv[1], "bench") != 0;
        if (!asked)
            return command[i].run(argc - 2, argv + 2);
    }
    if (asked || !strcmp(argv[1], "help") || is_help(argv[1])) {
        fputs(help, stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("seam %s, plugin ABI %d.%d\n", SEAM_VERSION, SEAM_ABI_MAJOR,
               SEAM_ABI_MINOR);
        return 0;
    }
    fprintf(stderr, "seam: unknown command '%s'; see seam help\n", argv[1]);
    return 2;
}
